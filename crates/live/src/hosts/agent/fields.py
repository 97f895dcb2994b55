"""Server-side apply, for trees whose lists are values."""


def leaves(tree, path=()):
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, path + (key,))
    else:
        yield path, tree


def find(tree, path):
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return None
        tree = tree[key]
    return tree


def put(tree, path, value):
    for key in path[:-1]:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    tree[path[-1]] = value


def take(tree, path):
    above = find(tree, path[:-1])
    if isinstance(above, dict) and path[-1] in above:
        del above[path[-1]]
        if not above and len(path) > 2:
            take(tree, path[:-1])


def fields_of(paths):
    tree = {}
    for path in sorted(paths):
        place = tree
        for key in path:
            place = place.setdefault("f:" + key, {})
    return tree


def paths_of(fields, path=()):
    found = set()
    for key, below in fields.items():
        inner = paths_of(below, path + (key[2:],))
        found |= inner or {path + (key[2:],)}
    return found


NOT_FIELDS = {("apiVersion",), ("kind",)} | {
    ("metadata", name)
    for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
}


def own_fields(body):
    return {
        path: value for path, value in leaves(body)
        if path not in NOT_FIELDS and path[0] not in ("status", "internal") and path[:2] != ("metadata", "managedFields")
    }


def written(live, wanted, manager, operation, subresource, force):
    """A live object with the fields that a manager writes."""
    entries = live["metadata"].get("managedFields", [])
    def is_own(entry):
        return (entry["manager"], entry["operation"], entry.get("subresource")) == (manager, operation, subresource)
    def overlaps(one, other):
        shorter = min(len(one), len(other))
        return one[:shorter] == other[:shorter]
    others = [(entry, paths_of(entry["fieldsV1"])) for entry in entries if not is_own(entry)]
    before = set().union(*[paths_of(entry["fieldsV1"]) for entry in entries if is_own(entry)])
    for path, value in wanted.items():
        if find(live, path) == value:
            continue
        for entry, paths in others:
            taken = {other for other in paths if overlaps(path, other)}
            if taken and operation == "Apply" and not force:
                message = 'Apply failed with 1 conflict: conflict with "%s": .%s' % (entry["manager"], ".".join(path))
                raise Refused(409, "Conflict", message)
            paths -= taken
        put(live, path, value)
    own = set(wanted)
    if operation == "Apply":
        kept = own.union(*[paths for _, paths in others])
        for path in sorted(before - own):
            if not any(overlaps(path, other) for other in kept):
                take(live, path)
    else:
        own |= before
    entries = [dict(entry, fieldsV1=fields_of(paths)) for entry, paths in others if paths]
    if own:
        entry = {
            "manager": manager, "operation": operation, "apiVersion": live["apiVersion"], "time": now(),
            "fieldsType": "FieldsV1", "fieldsV1": fields_of(own),
        }
        if subresource:
            entry["subresource"] = subresource
        entries.append(entry)
    live["metadata"]["managedFields"] = entries
    return live
