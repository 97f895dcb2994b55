//! Charts in golden cases, rendered without `helm`: the output of `helm` for each is kept beside the case, in
//! `helm/STACK-RELEASE.yaml` (and `.again.yaml`, when the second run says something else), or `.txt` when it ended with
//! an error.

#![allow(dead_code, clippy::unwrap_used, reason = "`cases` and `it` take a part each")]

use std::fs;
use std::path::{Path, PathBuf};

use stack::charts::{Render, Rendered, Trouble};

/// Answers as `helm` did when the case was made. A case with the file `helm/missing` has no `helm`.
pub fn recorded(case: &Path, stack: &str) -> impl Fn(&Render) -> Result<Rendered, Trouble> + Sync {
    let place = case.join("helm").join(stack);
    let missing = case.join("helm/missing");
    move |asked| {
        if missing.exists() {
            return Err(Trouble::NoProgram("helm".to_owned()));
        }
        let file = |ending: &str| kept(&place, asked, ending);
        if let Ok(said) = fs::read_to_string(file("txt")) {
            return Err(Trouble::Said(said));
        }
        let Ok(text) = fs::read_to_string(file("yaml")) else {
            return Err(Trouble::NotRun(format!("nothing is kept in {}", file("yaml").display())));
        };
        let again = fs::read_to_string(file("again.yaml")).unwrap_or_else(|_| text.clone());
        Ok(Rendered { text, again })
    }
}

/// The file of what `helm` said to a chart.
pub fn kept(place: &Path, asked: &Render, ending: &str) -> PathBuf {
    let stack = place.file_name().unwrap().to_string_lossy();
    place.with_file_name(format!("{stack}-{}.{ending}", asked.release))
}
