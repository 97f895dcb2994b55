//! `examples/walkthrough.md` does what it shows: its commands run in its order, and what they print has the shape of what
//! stands below them.

use std::collections::BTreeSet;

use crate::golden::root;
use crate::sandbox_server::{CommandOutput, User};

/// Without what differs from run to run: numbers, how long something took, and on what it was seen to wait.
fn shape(line: &str) -> Option<String> {
    let waits = |line: &str| line.ends_with("(# of #)") || !line.starts_with("#:#  ");
    let mut shape = String::new();
    for c in line.trim_end().chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if !(c == '#' && shape.ends_with('#')) {
            shape.push(c);
        }
    }
    let shape = shape.replace(" after #s", "");
    (waits(&shape) && !shape.starts_with("Took ") && !shape.starts_with("gpu_driver/")).then_some(shape)
}

/// Of all lines.
pub fn shapes<'l>(lines: impl Iterator<Item = &'l str>) -> BTreeSet<String> {
    lines.filter_map(shape).collect()
}

/// The text between two marks.
fn text_between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    text.split_once(from)?.1.split_once(to).map(|(found, _)| found)
}

#[test]
fn the_walkthrough_shows_what_is_printed() {
    let page = std::fs::read_to_string(root().join("examples/walkthrough.md")).unwrap();
    let user = User::empty();
    user.run(&["init", "--from", "rapids-gke"]).expect(0);
    let mut parts = page.split("```console\n$ dask-infra ");
    let mut before = parts.next().unwrap();
    for part in parts {
        if let Some(worker) = text_between(before, "```toml\n", "\n```") {
            user.edit("worker = { replicas = 2, gpus = 1, pool = \"default-pool\" }", worker);
        }
        if let Some(image) = text_between(before, "Edit the image to `", "`") {
            user.edit("nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12", image);
        }
        let (block, after) = part.split_once("```\n").unwrap();
        let (command, shown) = block.split_once('\n').unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        let CommandOutput { out, err, .. } = user.run(&words);
        let printed = shapes(out.lines().chain(err.lines()));
        let missing: Vec<String> =
            shapes(shown.lines().filter(|line| *line != "…")).difference(&printed).cloned().collect();
        assert!(missing.is_empty(), "{command} does not print {missing:#?} but\n{out}{err}");
        before = after;
    }
}
