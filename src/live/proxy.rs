//! The proxy that the environment names for the Kubernetes API of a GKE cluster. HTTPS_PROXY, ALL_PROXY and NO_PROXY mean
//! for it what they mean for Google's own API, whose client reads them with the same code.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use crate::resource::encoded;

/// The proxy for a server, if there is one, with its user and password in the URL, as kube takes them.
pub fn of(matcher: &Matcher, server: &http::Uri) -> Option<http::Uri> {
    let proxy = matcher.intercept(server)?;
    let (scheme, place) = (proxy.uri().scheme_str()?, proxy.uri().authority()?);
    let user = user(&proxy).map(|(user, password)| format!("{}:{}@", encoded(&user), encoded(&password)));
    format!("{scheme}://{}{place}/", user.unwrap_or_default()).parse().ok()
}

fn user(proxy: &Intercept) -> Option<(String, String)> {
    if let Some((user, password)) = proxy.raw_auth() {
        return Some((user.to_owned(), password.to_owned()));
    }
    let basic = STANDARD.decode(proxy.basic_auth()?.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
    let (user, password) = std::str::from_utf8(&basic).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_taken_with_its_user_and_left_out_where_it_is_not_meant() {
        let server: http::Uri = "https://34.1.2.3".parse().unwrap();
        for (https, no, expect) in [
            ("http://proxy.example:3128", "", Some("http://proxy.example:3128/")),
            ("proxy.example:3128", "", Some("http://proxy.example:3128/")),
            ("http://ada:p%40s%3A@proxy.example:3128", "", Some("http://ada:p%40s%3A@proxy.example:3128/")),
            ("http://ada@proxy.example:3128", "", Some("http://ada:@proxy.example:3128/")),
            ("http://proxy.example:3128", "34.1.2.0/24", None),
            ("http://proxy.example:3128", "10.0.0.1, 34.1.2.3", None),
            ("", "", None),
        ] {
            let matcher = Matcher::builder().https(https).no(no).build();
            let found = of(&matcher, &server).map(|proxy| proxy.to_string());
            assert_eq!(found.as_deref(), expect, "{https} {no}");
        }
    }
}
