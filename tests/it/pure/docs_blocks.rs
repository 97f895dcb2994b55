//! The stack files of the documentation: every block of TOML on its pages has only keys that exist, with values of their type.

use std::collections::BTreeMap;
use std::fs;

use model::diag::{self, Code};
use stack::{Options, parse_text};

use crate::golden::root;

/// Words of blocks of other files: faults of the sandbox.
const OTHER_FILES: [&str; 1] = ["[[request]]"];
/// Errors of a block that shows a part of a stack, or names a file that is not there, or belongs to somebody else.
const INCOMPLETE: [Code; 5] =
    [Code::MissingKey, Code::FileNotRead, Code::NotTrusted, Code::UserFiles, Code::NoBase];

#[test]
fn every_block_of_toml_in_the_docs_is_a_stack() {
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> =
        pages.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    let (mut broken, mut blocks) = (Vec::new(), 0);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for (number, block) in text.split("```toml\n").skip(1).enumerate() {
            let block = block.split("```").next().unwrap();
            if OTHER_FILES.iter().any(|word| block.contains(word)) {
                continue;
            }
            blocks += 1;
            let vars = BTreeMap::new();
            let options = Options { env: &|_| Some("x".to_owned()), vars: &vars, helm: None };
            let Err(mut failure) = parse_text("stack.toml", block, &options) else { continue };
            failure.diagnostics.retain(|problem| !INCOMPLETE.contains(&problem.code));
            if !failure.diagnostics.is_empty() {
                let shown = diag::render(&failure.diagnostics, &failure.sources, diag::Look::PLAIN);
                broken.push(format!("{}, block {}:\n{shown}", page.display(), number + 1));
            }
        }
    }
    assert!(blocks > 40, "{blocks} blocks");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
