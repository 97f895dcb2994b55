//! `docs/first-cluster.md` is true: its commands run on the sandbox in its order and print what stands below them, and those that
//! only a real project can answer are listed.

use crate::clients::gcloud::Gcloud;
use crate::golden::root;
use crate::sandbox::recorded_gke::fast;
use crate::sandbox::walkthrough::shapes;
use crate::sandbox_server::{CommandOutput, SandboxServer, User, on_path};

/// The blocks of a page in order: what is behind the fence, and the lines.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let inside = page.split("\n```").skip(1).step_by(2);
    inside.filter_map(|block| block.split_once('\n')).collect()
}

/// A command and what stands below it.
fn commands(block: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command, Vec::new())),
            (None, Some((_, shown))) => shown.push(line),
            (None, None) => panic!("{line:?} stands before any command"),
        }
    }
    found
}

/// A line without the name of its pod, which is another one in every run.
fn unnamed(line: &str) -> &str {
    let named = line.starts_with("[pod/");
    line.split_once("] ").filter(|_| named).map_or(line, |(_, rest)| rest)
}

/// Prices are compared digit by digit.
fn priced<'l>(lines: impl Iterator<Item = &'l str>) -> Vec<String> {
    lines.filter(|line| line.contains("/h")).map(|line| line.trim().to_owned()).collect()
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/first-cluster.md")).unwrap()
}

#[test]
fn the_guide_to_a_first_cluster_shows_what_is_printed() {
    let page = page();
    let served = SandboxServer::with(fast());
    let user = User::empty_at(&served.gke);
    let gcloud = on_path("gcloud", "--version").then(|| Gcloud::new(&served.gke, "my-project"));
    let mut run = 0;
    for (language, block) in blocks(&page) {
        if language == "toml" {
            user.write(block);
        }
        if language != "console" {
            continue;
        }
        for (command, shown) in commands(block) {
            let said = match command.split_once(' ') {
                Some(("dask-infra", words)) => {
                    let words: Vec<&str> = words.split_whitespace().collect();
                    let mut command = user.command(&words);
                    CommandOutput::of(&command.env("GOOGLE_CLOUD_PROJECT", "my-project").output().unwrap())
                }
                Some(("gcloud", words)) => {
                    let Some(gcloud) = &gcloud else { continue };
                    let (code, out) = gcloud.run(words);
                    CommandOutput { code, out, err: String::new() }
                }
                _ => panic!("no test can run {command:?}: put it into a block of sh"),
            };
            let said = said.expect(0);
            let all = format!("{}{}", said.out, said.err)
                .replace("— SIMULATED", "— LIVE")
                .replace(" min on GKE (", " min (");
            let shown: Vec<&str> = shown.into_iter().filter(|line| *line != "…").collect();
            let missing: Vec<String> = shapes(shown.iter().map(|line| unnamed(line)))
                .difference(&shapes(all.lines().map(unnamed)))
                .cloned()
                .collect();
            assert!(missing.is_empty(), "{command} does not print {missing:#?} but\n{all}");
            let prices = priced(all.lines());
            for price in priced(shown.iter().copied()) {
                assert!(prices.contains(&price), "{command} does not print {price:?} but\n{all}");
            }
            run += 1;
        }
    }
    assert!(run >= 14, "{run} commands");
    assert!(served.sandbox.clusters().is_empty());
}

/// The plan prints the numbers that the table of costs is computed from.
#[test]
fn its_sums_are_right() {
    let page = page();
    let dollars = |text: &str| text.trim().strip_prefix('$').and_then(|number| number.parse::<f64>().ok());
    let mut sums = (0.0, 0.0);
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [what, hour, four] = cells.as_slice() else { continue };
        let (Some(hour), Some(four)) = (dollars(hour), dollars(four)) else { continue };
        assert!((hour * 4.0 - four).abs() < 0.021, "{line}");
        if what.contains("in all") {
            assert!((sums.0 - hour).abs() < 0.005 && (sums.1 - four).abs() < 0.025, "{sums:?} {line}");
            assert!(page.contains(&format!("\nCost: ${hour:.2}/h as planned")), "{line}");
        } else if what.contains("disks") {
            continue;
        } else {
            sums = (sums.0 + hour, sums.1 + four);
        }
    }
    assert!(sums.0 > 0.5, "{sums:?}");
}

/// Nothing is left out silently.
#[test]
fn what_no_test_runs_is_listed() {
    let page = page();
    let (steps, listed) = page.split_once("## What no test has run").unwrap();
    let listed: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(command, _)| command)
        .collect();
    let shell: Vec<&str> = blocks(steps)
        .into_iter()
        .filter(|(language, _)| *language == "sh")
        .flat_map(|(_, block)| block.lines())
        .collect();
    for command in &shell {
        assert!(listed.iter().any(|listed| command.starts_with(listed)), "{command:?} is not listed");
    }
    for listed in listed {
        assert!(shell.iter().any(|command| command.starts_with(listed)), "{listed:?} is not in the guide");
    }
}
