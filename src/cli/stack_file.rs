//! Edits of the stack file by commands: `scale --write`, `apply --ttl`, `adopt`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::cli::session::Session;
use crate::cli::settings::{Failure, Settings};
use model::diag::{Code, Diagnostic};
use stack::edit::Edit;

/// Writes an edit. The edited stack must be the one that was planned; `help` is for the user when nothing is written.
///
/// # Errors
/// The file cannot be written, or more would change than the value.
pub(crate) fn write(settings: &Settings, edit: &Edit, planned: &Session, help: &str) -> Result<(), Failure> {
    let replace = |before: &str, after: &str| {
        replace_file(&edit.file, before, after).map_err(|problem| problem.help(help))
    };
    replace(&edit.before, &edit.after)?;
    match Session::load(settings) {
        Ok(now) if now.stack() == planned.stack() => Ok(()),
        Ok(_) | Err(_) => {
            replace(&edit.after, &edit.before)?;
            let what = format!("{} cannot be edited without changing anything else", edit.file.display());
            Err(Diagnostic::error(Code::CannotKeep, what).help("edit it by hand, then apply").into())
        }
    }
}

/// Replaces a file atomically. A file that has changed in the meantime is not replaced.
///
/// # Errors
/// The file cannot be written, or has another text.
pub(crate) fn replace_file(file: &Path, before: &str, after: &str) -> Result<(), Diagnostic> {
    let failed = |why: String| {
        Diagnostic::error(Code::CannotKeep, format!("{} cannot be written: {why}", file.display()))
    };
    let io = |error: std::io::Error| failed(error.to_string());
    // A link stays a link.
    let file = fs::canonicalize(file).map_err(io)?;
    if fs::read_to_string(&file).map_err(io)? != before {
        return Err(failed("it has changed in the meantime".to_owned()));
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = file.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut new = fs::File::create(&beside)?;
        new.write_all(after.as_bytes())?;
        new.set_permissions(fs::metadata(&file)?.permissions())?;
        new.sync_all()?;
        fs::rename(&beside, &file)
    };
    write().map_err(|error| {
        // A partly written file is useless.
        let _ = fs::remove_file(&beside);
        io(error)
    })
}
