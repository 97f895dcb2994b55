//! Environment variables, which name credentials and proxies.

/// A source of environment variables: a function, so that tests have their own.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns a variable of this process. An empty one counts as not set.
pub fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
