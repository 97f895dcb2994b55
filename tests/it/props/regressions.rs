//! Cases that once failed, replayed always: `cases/NAME.toml`.

use super::laws;
use super::player::{Player, paused};
use super::script::Script;
use crate::golden::root;

#[test]
fn kept_cases_stay_mended() {
    let mut files: Vec<_> = std::fs::read_dir(root().join("tests/it/props/cases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    let only = std::env::var("DASK_INFRA_CASE").unwrap_or_default();
    let mut broken = Vec::new();
    for file in &files {
        // One at a time, when it is looked into.
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        if !name.contains(&only) {
            continue;
        }
        let script: Script = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        match replay(&script) {
            Err(why) if script.waits.is_empty() => broken.push(format!("{name}: {why}")),
            Err(why) => {
                println!("{name} waits for {}: {}", script.waits, why.lines().next().unwrap_or_default());
            }
            Ok(()) if script.waits.is_empty() => {}
            Ok(()) => {
                broken.push(format!("{name}: it holds now: take `waits = \"{}\"` out of it", script.waits));
            }
        }
    }
    assert!(broken.is_empty(), "{} of {}:\n{}", broken.len(), files.len(), broken.join("\n"));
}

/// Every law after every step, and a destroy at the end that leaves nothing.
fn replay(script: &Script) -> Result<(), String> {
    paused(async {
        let mut player = Player::new();
        for (number, step) in script.steps.iter().enumerate() {
            let done = player.step(step).await;
            laws::all(&mut player, step, &done)
                .await
                .map_err(|why| format!("at step {}: {why}", number + 1))?;
        }
        laws::nothing_left(&mut player).await
    })
}
