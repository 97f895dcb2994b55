"""Dask's own protocol: asks a scheduler and its workers for their versions, and has a scheduler retire workers. No page that a
scheduler opens by default does either, and a client of Dask takes seconds to import.

A message is a length of 8 bytes, a count of frames, their lengths, and the frames; what is asked here comes in one frame of
msgpack. Both sides begin with what they are. Source: `distributed/comm/tcp.py` and `distributed/protocol/utils.py` of
distributed 2026.8.0; tried against it. `live/dask.rs` asks the same through a tunnel.
"""

# Bytes of an answer: the versions of a worker have 700, a retired worker about 2,000.
LONGEST_ANSWER = 16 * 1024 * 1024
# Where the protocol is one that only a client of Dask speaks, as `ucx`. Prints what the scheduler answers.
RETIRES = """
import asyncio, json, sys
from distributed.core import rpc
async def run(address, workers):
    scheduler = rpc(address)
    try:
        print(json.dumps(sorted(await scheduler.retire_workers(workers=workers))))
    finally:
        await scheduler.close_rpc()
asyncio.run(run(sys.argv[1], json.loads(sys.argv[2])))
"""
# Errors of an exchange that came to nothing.
NO_ANSWER = (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError)


def packed(value):
    """A value as msgpack: what requests are made of."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value)
    if isinstance(value, str):
        text = value.encode()
        return struct.pack(">BI", 0xDB, len(text)) + text
    if isinstance(value, dict):
        inner = b"".join(packed(key) + packed(one) for key, one in value.items())
        return struct.pack(">BI", 0xDF, len(value)) + inner
    return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(packed, value))


def unpacked(data):
    """The value in msgpack, without its extensions. Source: github.com/msgpack/msgpack, spec.md."""
    at = 0
    def take(count):
        nonlocal at
        if at + count > len(data):
            raise ValueError("it is cut off")
        at += count
        return data[at - count:at]
    def number(form):
        return struct.unpack(">" + form, take(struct.calcsize(form)))[0]
    def many(count):
        return [one() for _ in range(count)]
    def key():
        # Measurements of workers have keys that are tuples.
        found = one()
        return tuple(found) if isinstance(found, list) else found
    def pairs(count):
        return {key(): one() for _ in range(count)}
    def text(count):
        return take(count).decode(errors="replace")
    def one():
        kind = number("B")
        if kind < 0x80 or kind >= 0xE0:
            return kind if kind < 0x80 else kind - 0x100
        for first, last, form in ((0x80, 0x8F, pairs), (0x90, 0x9F, many), (0xA0, 0xBF, text)):
            if first <= kind <= last:
                return form(kind - first)
        if kind in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[kind]
        for first, forms, made in (
            (0xC4, "BHI", take), (0xCA, "fd", None), (0xCC, "BHIQ", None), (0xD0, "bhiq", None), (0xD9, "BHI", text),
            (0xDC, "HI", many), (0xDE, "HI", pairs),
        ):
            if first <= kind < first + len(forms):
                value = number(forms[kind - first])
                return made(value) if made else value
        raise ValueError("nobody asked for %#x" % kind)
    return one()


def dask_asks(terms, questions, patience):
    """The answers of a scheduler with these terms, whatever it does within so many seconds."""
    until = time.monotonic() + patience
    address = listens(terms), int(terms["port"])
    with wrapped(socket.create_connection(address, patience), terms) as link:
        def bounded():
            left = until - time.monotonic()
            if left <= 0:
                raise socket.timeout("it did not answer in time")
            link.settimeout(left)
            return link
        def read(count):
            found = b""
            while len(found) < count:
                some = bounded().recv(min(1 << 16, count - len(found)))
                if not some:
                    raise OSError("it hung up")
                found += some
            return found
        def exchange(message):
            text = packed(message)
            bounded().sendall(struct.pack("<QQQ", len(text) + 16, 1, len(text)) + text)
            length, = struct.unpack("<Q", read(8))
            if length > LONGEST_ANSWER:
                raise ValueError("that is no answer")
            answer = read(length)
            count, = struct.unpack_from("<Q", answer)
            if not 0 < count < 1024:
                raise ValueError("that is no answer")
            return answer[8 * (count + 1):]
        exchange({"compression": None, "python": list(sys.version_info[:3]), "pickle-protocol": 4})
        return [unpacked(exchange(dict(question, reply=True))) for question in questions]


def versions_at(cluster, workers, patience):
    """The versions of a scheduler, and of some workers by their addresses; nothing when they do not tell."""
    terms = terms_of(cluster)
    if not is_spoken(terms):
        return None
    told = {"op": "broadcast", "msg": {"op": "versions"}, "workers": sorted(workers), "on_error": "ignore"}
    try:
        answers = dask_asks(terms, [{"op": "versions"}, told], patience)
        # One that goes at this moment tells nothing.
        of_workers = {at: packages_of(one) for at, one in answers[1].items() if isinstance(one, dict) and "packages" in one}
        return packages_of(answers[0]), of_workers
    except NO_ANSWER:
        return None


def is_certified(cluster):
    """Returns true for a scheduler with the certificates of its cluster: one with those from before ends."""
    terms = terms_of(cluster)
    if terms.get("protocol") == ENCRYPTED:
        try:
            # It answers only who has them.
            dask_asks(terms, [], ANSWER)
        except NO_ANSWER:
            return False
    return True


def is_spoken(terms):
    """Whether a scheduler with these terms can be asked here."""
    return terms.get("protocol", "tcp") in ("tcp", ENCRYPTED)


def retired_at(cluster, workers, patience):
    """The addresses of the workers that a scheduler retired, of those that it is asked to retire."""
    terms = terms_of(cluster)
    question = {"op": "retire_workers", "workers": sorted(workers)}
    answer = dask_asks(terms, [question], patience)[0]
    if not isinstance(answer, dict):
        raise ValueError("that is no answer")
    return set(workers).intersection(answer)
