//! `show --effective`: the stack with its files, variables and short forms resolved.

use crate::cli::Exit;
use crate::cli::session::Session;
use crate::cli::settings::{Format, Settings};
use crate::report::human::Detail;
use stack::effective::Effective;

/// Prints the effective stack; reads only files.
pub fn show(settings: &Settings, json: bool) -> Exit {
    settings.show(Format::json(false), |reporter| {
        let session = Session::load(settings)?;
        reporter.diagnostics(session.warnings(), session.sources());
        let effective = Effective::new(session.stack(), session.sources(), session.lowered());
        Ok(match json {
            true => format!("{:#}\n", effective.json()),
            false => effective.toml(settings.detail() == Detail::Objects),
        })
    })
}
