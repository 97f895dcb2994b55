//! Private folders for sockets, notes and logs: no other user may choose, read or redirect them.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::environment::env_var;
use model::shell::quoted;

/// Permission bits that let other users enter a folder, and that let them write into it.
const ENTERABLE: u32 = 0o077;
const WRITABLE: u32 = 0o022;

/// Returns the path in an environment variable; a relative one is ignored.
pub fn path_from_env(variable: &str) -> Option<PathBuf> {
    env_var(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the folder for the state of this user's programs. Source: XDG Base Directory Specification.
pub fn state_dir() -> Option<PathBuf> {
    path_from_env("XDG_STATE_HOME").or_else(|| Some(path_from_env("HOME")?.join(".local/state")))
}

/// Returns the folder for files of this user's programs that can be made again. Source: XDG Base Directory Specification.
pub fn cache_dir() -> Option<PathBuf> {
    path_from_env("XDG_CACHE_HOME").or_else(|| Some(path_from_env("HOME")?.join(".cache")))
}

/// Creates a private folder with its parents, or returns the existing one. Links are refused, and so are folders that others own
/// or can enter.
///
/// # Errors
///
/// The reason why there is none.
pub fn create_private_dir(path: &Path) -> Result<PathBuf, String> {
    checked(path, ENTERABLE, "other users can enter it; run `chmod 700 ")
}

/// Creates a folder that other users may read.
///
/// # Errors
///
/// The reason why there is none.
pub fn create_dir(path: &Path) -> Result<PathBuf, String> {
    checked(path, WRITABLE, "other users can write into it; run `chmod go-w ")
}

fn checked(path: &Path, denied: u32, why: &str) -> Result<PathBuf, String> {
    let cannot = |what: &dyn std::fmt::Display| format!("{} cannot be used: {what}", path.display());
    match DirBuilder::new().mode(0o700).recursive(true).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(cannot(&error)),
        _ => {}
    }
    // Not through a link.
    let found = fs::symlink_metadata(path).map_err(|error| cannot(&error))?;
    if !found.is_dir() {
        return Err(cannot(&"it is not a folder"));
    }
    if found.uid() != uid() {
        return Err(cannot(&"it belongs to another user"));
    }
    if found.mode() & denied != 0 {
        return Err(cannot(&format!("{why}{}`", quoted(&path.display().to_string()))));
    }
    Ok(path.to_owned())
}

/// Returns the user id of this process.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn only_a_folder_of_the_user_alone_is_taken() {
        let top = tempfile::tempdir().unwrap();
        let made = top.path().join("a/b");
        assert_eq!(create_private_dir(&made), Ok(made.clone()));
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        assert_eq!(create_private_dir(&made), Ok(made.clone()), "again");
        fs::set_permissions(&made, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(create_private_dir(&made).unwrap_err().contains("other users can enter it"));
        assert_eq!(create_dir(&made), Ok(made.clone()));
        fs::set_permissions(&made, fs::Permissions::from_mode(0o720)).unwrap();
        assert!(create_dir(&made).unwrap_err().contains("other users can write into it"));
        let link = top.path().join("link");
        symlink(top.path().join("a"), &link).unwrap();
        assert!(create_private_dir(&link).unwrap_err().contains("not a folder"));
        fs::write(top.path().join("file"), "").unwrap();
        assert!(create_private_dir(&top.path().join("file")).is_err());
        if uid() != 0 {
            assert!(create_private_dir(Path::new("/")).unwrap_err().contains("another user"));
        }
    }
}
