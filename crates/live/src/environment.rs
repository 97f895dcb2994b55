//! Variables of the environment, which say where credentials are and through which proxy requests go.

/// The environment, as a function so that tests have their own.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of this process. An empty variable is one that is not set.
pub fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
