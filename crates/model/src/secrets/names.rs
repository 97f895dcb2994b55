//! Names of secrets: `HF_TOKEN`, `existingSecret`, `x-api-key`.

/// Words that make a name that of a secret.
const SECRET: [&str; 15] = [
    "TOKEN",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASSPHRASE",
    "PASSCODE",
    "CREDENTIAL",
    "CREDENTIALS",
    "APIKEY",
    // Of Docker's `config.json`.
    "IDENTITYTOKEN",
    "REGISTRYTOKEN",
    "JWT",
    "PSK",
];
/// Words that count only after another word: `PWD` alone is a folder, `PASS` alone a verb.
const LAST: [&str; 3] = ["PASS", "PWD", "PAT"];
/// Words before `KEY` that make it a secret.
const KEYS: [&str; 11] = [
    "API",
    "ACCESS",
    "PRIVATE",
    "SECRET",
    "ENCRYPTION",
    "SIGNING",
    "MASTER",
    "ACCOUNT",
    "STORAGE",
    "SSH",
    "LICENSE",
];
/// Words before `KEY` in names of variables that make it no secret.
const OPEN_KEYS: [&str; 9] =
    ["PUBLIC", "PRIMARY", "PARTITION", "SORT", "CACHE", "GROUP", "FOREIGN", "TOPOLOGY", "ROUTING"];
/// Last words of names that are about a secret without being one: where it is, how long it lasts.
const ABOUT: [&str; 46] = [
    "NAME",
    "NAMES",
    "FILE",
    "FILES",
    "FILENAME",
    "PATH",
    "DIR",
    "FOLDER",
    "URL",
    "URI",
    "ENDPOINT",
    "HOST",
    "PORT",
    "ID",
    "REF",
    "REFS",
    "TYPE",
    "COUNT",
    "LIMIT",
    "LENGTH",
    "SIZE",
    "TTL",
    "SECONDS",
    "MINUTES",
    "EXPIRY",
    "EXPIRATION",
    "EXPIRES",
    "LIFETIME",
    "DURATION",
    "TIMEOUT",
    "ENABLED",
    "DISABLED",
    "REQUIRED",
    "POLICY",
    "MODE",
    "MOUNT",
    "HEADER",
    "AUDIENCE",
    "ISSUER",
    "NAMESPACE",
    "VERSION",
    "ALGORITHM",
    "PROVIDER",
    "STORE",
    "PREFIX",
    "SELECTOR",
];
/// First words of switches and limits.
const SWITCHES: [&str; 15] = [
    "MAX",
    "MIN",
    "NUM",
    "ENABLE",
    "DISABLE",
    "USE",
    "HAS",
    "IS",
    "ALLOW",
    "EXISTING",
    "AUTOMOUNT",
    "SKIP",
    "REQUIRE",
    "NO",
    "EXPIRE",
];

/// Returns the words of `HF_TOKEN`, `existingSecret` and `x-api-key`, in capitals.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut open, mut was_lower) = (false, false);
    for c in name.chars() {
        if !c.is_alphanumeric() {
            open = false;
            continue;
        }
        if !open || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        (open, was_lower) = (true, c.is_lowercase() || c.is_ascii_digit());
        if let Some(word) = words.last_mut() {
            word.extend(c.to_uppercase());
        }
    }
    words
}

/// Returns true if a name may be that of a secret: each of the words above contains one of these roots. This check is a fast
/// path: texts are searched word by word, and splitting a name is the most expensive part.
fn has_root(name: &str) -> bool {
    let bytes = name.as_bytes();
    let begins = |(at, byte): (usize, &u8)| {
        let roots: &[&str] = match byte.to_ascii_uppercase() {
            b'T' => &["TOKEN"],
            b'S' => &["SECRET"],
            b'P' => &["PASS", "PWD", "PAT", "PSK"],
            b'C' => &["CREDENTIAL"],
            b'K' => &["KEY"],
            b'J' => &["JWT"],
            _ => return false,
        };
        let is_here = |root: &&str| {
            bytes.get(at..at + root.len()).is_some_and(|here| here.eq_ignore_ascii_case(root.as_bytes()))
        };
        roots.iter().any(is_here)
    };
    // Capitals of other alphabets may be of this one: `ſ` is an `S`.
    !name.is_ascii() || bytes.iter().enumerate().any(begins)
}

/// Returns true if a variable, key, annotation or flag of this name holds a secret.
pub fn is_secret(name: &str) -> bool {
    if !has_root(name) {
        return false;
    }
    let words = words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((last, before)) = words.split_last() else { return false };
    if ABOUT.contains(last) || words.first().is_some_and(|first| SWITCHES.contains(first)) {
        return false;
    }
    let variable = name.chars().all(|c| !c.is_lowercase());
    let previous = before.last().copied().unwrap_or_default();
    if matches!(*last, "KEY" | "KEYS") {
        let opens = |word: &str| OPEN_KEYS.contains(&word) || SECRET.contains(&word) && word != "SECRET";
        return KEYS.contains(&previous) || (variable && !before.is_empty() && !opens(previous));
    }
    let keyed = words.windows(2).any(|pair| pair[1] == "KEY" && KEYS.contains(&pair[0]));
    keyed || words.iter().any(|word| SECRET.contains(word)) || (!before.is_empty() && LAST.contains(last))
}

/// Returns true if the last word of the name is `auth`, as in Docker's configuration.
pub(super) fn is_auth(name: &str) -> bool {
    let end = name.trim_end_matches(|c: char| !c.is_alphanumeric());
    if name.is_ascii()
        && !end.get(end.len().saturating_sub(4)..).is_some_and(|end| end.eq_ignore_ascii_case("auth"))
    {
        return false;
    }
    words(name).last().is_some_and(|last| last == "AUTH")
}

/// Names of files with keys, passwords or tokens. Sources: ssh-keygen(1), git-credential-store(1), netrc(5), the documentation of
/// pip, Docker, AWS and gcloud on their configuration files.
const FILES: [&str; 17] = [
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".dockerconfigjson",
    "credentials",
    "credentials.json",
    "application_default_credentials.json",
    "kubeconfig",
    "service-account.json",
    ".htpasswd",
];

/// Ends of the names of files with keys.
const KEY_FILES: [&str; 11] = [
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    ".jks",
    ".keystore",
    ".kdbx",
    ".env",
    ".tfvars",
    ".tfstate",
    ".tfstate.backup",
];

/// Names that are those of secrets in a folder of this name only.
const IN_FOLDER: [&str; 2] = [".kube/config", ".docker/config.json"];

/// The formats of files called `secrets`.
const SECRETS_FORMATS: [&str; 4] = ["toml", "yaml", "yml", "json"];

/// Returns true if a file of this path has secrets by its name: `.env`, `tls.key`, `id_rsa`. An example of one has none.
pub fn is_secret_file(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    let is_example =
        ["example", "sample", "template", "dist"].iter().any(|end| name.ends_with(&format!(".{end}")));
    let is_env = name == ".envrc" || name.starts_with(".env.");
    let is_secrets = name.strip_prefix("secrets.").is_some_and(|format| SECRETS_FORMATS.contains(&format));
    let is_in_folder = IN_FOLDER
        .iter()
        .any(|end| path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/')));
    let is_key = FILES.contains(&name) || KEY_FILES.iter().any(|end| name.ends_with(end));
    !is_example && (is_env || is_secrets || is_in_folder || is_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_keys_are_known_by_their_names() {
        for name in [
            ".env",
            "conf/.env.prod",
            "id_rsa",
            "a/tls.PEM",
            "server.key",
            ".netrc",
            "credentials.json",
            ".envrc",
            "prod.env",
            "conf/secrets.toml",
            "prod.tfvars",
            "terraform.tfstate.backup",
            ".htpasswd",
            "home/.kube/config",
            ".docker/config.json",
        ] {
            assert!(is_secret_file(name), "{name}");
        }
        for name in [
            "env.py",
            ".env.example",
            "train.py",
            "keys.py",
            "id_rsa.pub",
            "credentials.py",
            "monkey",
            "secrets.py",
            "kube/config",
            "config.json",
        ] {
            assert!(!is_secret_file(name), "{name}");
        }
    }

    #[test]
    fn a_name_is_taken_apart_when_a_word_in_it_tells_a_secret() {
        for word in SECRET.iter().chain(&LAST).chain(&["KEY", "KEYS"]) {
            let (lower, inside) = (word.to_lowercase(), format!("my{word}x"));
            assert!(has_root(word) && has_root(&lower) && has_root(&inside), "{word}");
        }
        assert!(["image", "replicas", "", "spec.worker", "p"].iter().all(|name| !has_root(name)));
        assert!(is_secret("paſſword") && is_auth("X-Auth:") && is_auth("auth") && !is_auth("author"));
    }
}
