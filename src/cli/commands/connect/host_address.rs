//! Addresses reported by a host, parsed and formatted again, so that text printed for pasting contains nothing else.

use std::net::{IpAddr, Ipv6Addr};

use serde_json::Value;

/// Protocols of Dask.
const SCHEMES: [&str; 4] = ["tcp", "tls", "ucx", "ucxx"];

/// `tcp://HOST:PORT`.
pub fn address(said: &Value) -> Option<String> {
    let (scheme, place) = said.as_str()?.split_once("://")?;
    let scheme = SCHEMES.iter().find(|known| **known == scheme)?;
    Some(format!("{scheme}://{}", place_of(place)?))
}

/// Returns the URL of a dashboard, `http://HOST:PORT/status`; `None` if a host said anything else.
pub fn dashboard(said: &Value) -> Option<String> {
    let (scheme, rest) = said.as_str()?.split_once("://")?;
    let scheme = ["http", "https"].into_iter().find(|known| *known == scheme)?;
    Some(format!("{scheme}://{}/status", place_of(rest.strip_suffix("/status")?)?))
}

/// Returns a port.
pub fn port(said: &Value) -> Option<u16> {
    said.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

/// Returns a host as URLs have it: `n1`, `10.0.0.1`, `[fe80::1]`.
pub fn host(said: &str) -> Option<String> {
    let bare = said.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(said);
    let word = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    match bare.split_once('%') {
        Some((ip, zone)) => {
            let ip: Ipv6Addr = ip.parse().ok()?;
            word(zone).then(|| format!("[{ip}%{zone}]"))
        }
        None => match bare.parse() {
            Ok(IpAddr::V4(ip)) => Some(ip.to_string()),
            Ok(IpAddr::V6(ip)) => Some(format!("[{ip}]")),
            Err(_) => word(bare).then(|| bare.to_owned()),
        },
    }
}

fn place_of(text: &str) -> Option<String> {
    let (name, number) = text.rsplit_once(':')?;
    Some(format!("{}:{}", host(name)?, number.parse::<u16>().ok().filter(|port| *port > 0)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_addresses_come_through() {
        for plain in
            ["tcp://127.0.0.1:8786", "tls://n-1.lab:8786", "tcp://[fe80::1]:1", "ucx://[fe80::1%eth0]:2"]
        {
            assert_eq!(address(&json!(plain)).as_deref(), Some(plain));
        }
        for hostile in [
            "tcp://x\"); __import__(\"os\").system(\"id\")#",
            "tcp://$(id):8786",
            "tcp://n1:8786;id",
            "tcp://n1:0",
            "tcp://n1",
            "inproc://n1:1",
            "tcp://-oProxyCommand=id:22",
            "tcp://fe80::1%a b:1",
            "",
        ] {
            assert_eq!(address(&json!(hostile)), None, "{hostile}");
        }
        assert_eq!(address(&json!(7)), None);
        assert_eq!(dashboard(&json!("http://n1:8787/status")).as_deref(), Some("http://n1:8787/status"));
        for hostile in ["http://n1:8787/status?x", "file://n1:1/status", "http://n1:8787/$(id)"] {
            assert_eq!(dashboard(&json!(hostile)), None, "{hostile}");
        }
        assert_eq!(
            [json!(8786), json!(0), json!(65536), json!("1")].each_ref().map(port),
            [Some(8786), None, None, None]
        );
    }
}
