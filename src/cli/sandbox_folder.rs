//! The URL and the token of a sandbox that is served from a folder.

use std::fs;
use std::path::Path;

use serde_json::Value;

use sandbox::{TOKEN, has_other_owner};

/// Returns the URL at which a folder's sandbox is served, if a process claims to serve it.
pub fn served_url(dir: &Path) -> Option<String> {
    // Links and files of other users are not trusted.
    let file = fs::symlink_metadata(dir.join("serve.json")).is_ok_and(|found| found.is_file());
    if !file || has_other_owner(dir) {
        return None;
    }
    let text = fs::read_to_string(dir.join("serve.json")).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    value["gke"].as_str().map(str::to_owned)
}

/// The environment variable with the path of a served sandbox's token file.
pub const TOKEN_FILE: &str = "DASK_INFRA_SANDBOX_TOKEN_FILE";

/// Returns the token that the sandbox of a folder requires from its clients.
pub fn token_in(dir: &Path) -> Option<String> {
    read_token(&dir.join(TOKEN))
}

/// Returns the token of the sandbox that `sandbox env` has pointed at.
pub fn token_from_env() -> Option<String> {
    read_token(Path::new(&std::env::var_os(TOKEN_FILE)?))
}

fn read_token(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}
