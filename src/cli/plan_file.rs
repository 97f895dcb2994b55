//! Saved plans on disk.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use model::diag::{Code, Diagnostic};
use plan::{Plan, file};

/// Writes a plan.
///
/// # Errors
/// The plan cannot be written.
pub fn save(path: &Path, plan: &Plan) -> Result<(), Diagnostic> {
    let text = file::to_bytes(plan).map_err(|why| write_failure(path, &why.to_string()))?;
    write(path, &text).map_err(|why| write_failure(path, &why.to_string()))
}

fn write_failure(path: &Path, why: &str) -> Diagnostic {
    Diagnostic::error(Code::CannotWrite, format!("the plan cannot be written to {}: {why}", path.display()))
        .help("choose a file in a writable folder")
}

/// Checks that a plan can be saved at `path`, before the live state is read: reading takes a while.
///
/// # Errors
/// The parent folder does not exist, or `path` is a folder.
pub(crate) fn check_folder(path: &Path) -> Result<(), Diagnostic> {
    let folder = folder(path);
    if path.is_dir() {
        Err(write_failure(path, "it is a folder"))
    } else if !folder.is_dir() {
        Err(write_failure(path, &format!("there is no folder {}", folder.display())))
    } else {
        Ok(())
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Reads a plan that [`save`] wrote.
///
/// # Errors
/// It is not there, or no plan that this version of the program can use.
pub fn load(path: &Path) -> Result<Plan, Diagnostic> {
    let shown = path.display().to_string();
    let text = std::fs::read(path).map_err(|why| match why.kind() {
        ErrorKind::NotFound => file::unusable_plan_file(&shown, "no such file"),
        _ => file::unusable_plan_file(&shown, &why.to_string()),
    })?;
    file::read(&shown, &text)
}

/// Writes a file atomically, so that there is never an incomplete plan under the name. Only this user can read it, because a plan
/// contains every body that would be sent.
pub(crate) fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    let Some(name) = path.file_name().filter(|_| !special) else { return std::fs::write(path, text) };
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    // Made by nobody else before, with mode 0600.
    let mut beside = tempfile::Builder::new().prefix(&prefix).tempfile_in(folder(path))?;
    beside.write_all(text)?;
    beside.persist(path).map(drop).map_err(|failed| failed.error)
}
