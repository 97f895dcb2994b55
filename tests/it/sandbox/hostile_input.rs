//! Hostile input: every parser and every reader, fed with what seeds become when they are cut, repeated, spliced and
//! mixed with what breaks parsers and terminals. No panic, no hang, no message without a place, and nothing that steers
//! a terminal comes through to a stream. `DASK_INFRA_CASES=N` is the number of inputs for each of [`PARSERS`],
//! `DASK_INFRA_PARSER=WORD` takes those whose name holds it, `DASK_INFRA_SEED=N` begins elsewhere.

mod answers;
mod folder;
mod hosts;
pub mod mutation;
mod texts;
mod values;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dask_infra::report::human::plan_text;
use dask_infra::report::{Human, Reporter as _, Screen, Stream};
use model::diag::Diagnostic;
use model::source::Sources;
use serde_json::Value;

use self::answers::*;
use self::folder::*;
use self::hosts::*;
use self::mutation::{Rng, mutate_bytes, mutate_value};
use self::texts::*;
use self::values::*;

/// A parser or reader: what it reads when all is well, and how it is fed. What a feed gives back is a complaint.
struct Parser {
    name: &'static str,
    seeds: fn() -> Vec<Vec<u8>>,
    /// True to change values rather than bytes: most broken JSON tells nothing about a reader of JSON.
    json: bool,
    feed: fn(&[u8], &Path) -> Result<(), String>,
}

const PARSERS: &[Parser] = &[
    Parser { name: "stack (TOML)", seeds: stacks, json: false, feed: stack },
    Parser { name: "manifest (YAML)", seeds: manifests, json: false, feed: manifest },
    Parser { name: "values of a chart (YAML)", seeds: values, json: false, feed: value_file },
    Parser { name: "what helm prints", seeds: manifests, json: false, feed: rendered },
    Parser { name: "kubeconfig", seeds: kubeconfigs, json: false, feed: kubeconfig },
    Parser { name: "command line", seeds: lines, json: false, feed: line },
    Parser { name: "field paths, addresses", seeds: paths, json: false, feed: path },
    Parser { name: "quantities, flags, faults", seeds: words, json: false, feed: word },
    Parser { name: "secrets in texts", seeds: texts, json: false, feed: text },
    Parser { name: "comparison", seeds: pairs, json: true, feed: compare },
    Parser { name: "comparison, any two", seeds: any_two, json: true, feed: differ },
    Parser { name: "saved plan", seeds: plans, json: true, feed: saved },
    Parser { name: "saved plan, bytes", seeds: plans, json: false, feed: saved_bytes },
    Parser { name: "record", seeds: records, json: true, feed: recorded },
    Parser { name: "record, bytes", seeds: records, json: false, feed: recorded },
    Parser { name: "answers, by shape", seeds: bodies, json: false, feed: body },
    Parser { name: "answers, planned", seeds: answers, json: true, feed: answer },
    Parser { name: "answers, readiness", seeds: objects, json: true, feed: judge },
    Parser { name: "answers, import", seeds: objects, json: true, feed: imported },
    Parser { name: "price file", seeds: price_files, json: false, feed: price_file },
    Parser { name: "answers of Cloud Billing", seeds: price_pages, json: true, feed: price_page },
    Parser { name: "answers of hosts", seeds: lives, json: true, feed: live },
    Parser { name: "sandbox folder, bytes", seeds: folders, json: false, feed: folder },
    Parser { name: "sandbox folder, entries", seeds: entries, json: true, feed: entry },
];

/// Returns the output that a person would see; it is an error if anything in it controls the terminal.
fn rendered_output(say: impl FnOnce(&mut Human)) -> Result<String, String> {
    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);
    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let kept = SharedBuffer::default();
    let stream = || Stream::plain(Box::new(kept.clone()), 100);
    let mut human =
        Human::new(Screen::new(stream(), stream()), plan_text::Detail::Objects, "dask-infra".into());
    say(&mut human);
    let text =
        String::from_utf8(kept.0.lock().unwrap().clone()).map_err(|_| "output is not text".to_owned())?;
    check_terminal_safe(&text)?;
    Ok(text)
}

/// That nothing in a text steers a terminal.
fn check_terminal_safe(text: &str) -> Result<(), String> {
    let steers = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}')
    };
    match text.chars().find(|c| steers(*c)) {
        Some(c) => Err(format!("{c:?} reaches the terminal: {text:?}")),
        None => Ok(()),
    }
}

fn check_messages(diagnostics: &[Diagnostic], sources: &Sources) -> Result<(), String> {
    let text = rendered_output(|human| human.diagnostics(diagnostics, sources))?;
    let line = text.lines().max_by_key(|line| line.len()).unwrap_or_default();
    if text.len() > 400_000 || line.len() > 20_000 {
        let begin: String = line.chars().take(200).collect();
        return Err(format!("{} bytes, {} in a line, are printed: {begin}", text.len(), line.len()));
    }
    let nowhere = |told: &&Diagnostic| told.location(sources).is_none() && told.address().is_none();
    diagnostics
        .iter()
        .find(nowhere)
        .map_or(Ok(()), |told| Err(format!("no place: {} {}", told.code, told.message)))
}

/// How it went with one input: how long it took is told and judges nothing.
struct InputResult {
    case: usize,
    took: Duration,
    told: Option<(String, Vec<u8>)>,
}

/// Runs a parser on an input. Returns a complaint or a panic, if any.
fn run_parser(parser: &Parser, input: &[u8], scratch: &Path) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| (parser.feed)(input, scratch))) {
        Ok(said) => said.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            Some(format!("panic: {}", words.unwrap_or_default()))
        }
    }
}

/// The shortest that still does it, by removing ever smaller pieces.
fn shrink(parser: &Parser, input: Vec<u8>, scratch: &Path) -> Vec<u8> {
    let mut best = input;
    let mut size = best.len() / 2;
    let mut tries = 400;
    while size > 0 && tries > 0 {
        let mut at = 0;
        while at < best.len() && tries > 0 {
            tries -= 1;
            let mut less = best.clone();
            less.drain(at..(at + size).min(best.len()));
            if run_parser(parser, &less, scratch).is_some() { best = less } else { at += size }
        }
        size /= 2;
    }
    best
}

/// Longer than this no input takes, on any machine that runs the tests; an endless loop takes longer.
const HANGS: Duration = Duration::from_secs(240);

fn number(name: &str, or: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

#[test]
fn no_input_breaks_a_parser_or_a_terminal() {
    let cases = number("DASK_INFRA_CASES", 60);
    let first = number("DASK_INFRA_SEED", 1);
    let only = std::env::var("DASK_INFRA_PARSER").unwrap_or_default();
    let mut found = Vec::new();
    println!(
        "{:<28} {:>8} {:>7} {:>6} {:>14} {:>11} {:>8} {:>11}",
        "parser", "inputs", "panics", "hangs", "without place", "complaints", "seconds", "slowest ms"
    );
    for parser in PARSERS.iter().filter(|parser| parser.name.contains(&only)) {
        let (say, heard) = channel::<InputResult>();
        std::thread::spawn(move || {
            // In memory where there is such a folder: a store waits for its disk otherwise.
            let memory = Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir());
            let scratch = tempfile::tempdir_in(memory.unwrap_or(&std::env::temp_dir())).unwrap();
            let seeds = (parser.seeds)();
            let mut complaints = 0;
            for case in 0..cases {
                let mut rng = Rng::new((first + case) as u64);
                let seed = rng.pick(&seeds).clone();
                // The seeds themselves come first.
                let input = match seeds.get(case) {
                    Some(seed) => seed.clone(),
                    None if parser.json => {
                        let mut value: Value = serde_json::from_slice(&seed).unwrap();
                        for _ in 0..=rng.below(3) {
                            mutate_value(&mut value, &mut rng);
                        }
                        value.to_string().into_bytes()
                    }
                    None => mutate_bytes(&seed, &seeds, &mut rng),
                };
                let began = Instant::now();
                let told = run_parser(parser, &input, scratch.path());
                let took = began.elapsed();
                complaints += usize::from(told.is_some());
                let told = told.map(|why| match complaints {
                    0..=3 => (why, shrink(parser, input, scratch.path())),
                    _ => (why, input),
                });
                if say.send(InputResult { case, took, told }).is_err() {
                    return;
                }
            }
        });
        let (mut inputs, mut panics, mut nowhere, mut complaints, mut hangs) = (0, 0, 0, 0, 0);
        let (began, mut slowest) = (Instant::now(), (Duration::ZERO, 0));
        loop {
            match heard.recv_timeout(HANGS) {
                Ok(InputResult { case, took, told }) => {
                    inputs += 1;
                    slowest = slowest.max((took, first + case));
                    let Some((why, input)) = told else { continue };
                    if why.starts_with("panic") {
                        panics += 1;
                    } else if why.starts_with("no place") {
                        nowhere += 1;
                    } else {
                        complaints += 1;
                    }
                    if panics + nowhere + complaints <= 3 {
                        let input = String::from_utf8_lossy(&input).chars().take(2000).collect::<String>();
                        found.push(format!("{} (seed {}): {why}\n{input:?}", parser.name, first + case));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    hangs += 1;
                    found.push(format!("{} (seed {}): hangs", parser.name, first + inputs));
                    break;
                }
            }
        }
        println!(
            "{:<28} {inputs:>8} {panics:>7} {hangs:>6} {nowhere:>14} {complaints:>11} {:>8} {:>11} (seed {})",
            parser.name,
            began.elapsed().as_secs(),
            slowest.0.as_millis(),
            slowest.1
        );
        if inputs < cases && hangs == 0 {
            found.push(format!("{}: the seeds could not be made", parser.name));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

/// Returns a stack once without each of its sections.
fn without_a_section(stack: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(stack);
    let mut sections = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            sections.push(String::new());
        }
        sections.last_mut().unwrap().push_str(line);
    }
    let without = |left_out| {
        let kept = sections.iter().enumerate().filter(|(index, _)| *index != left_out);
        kept.map(|(_, section)| section.as_str()).collect::<String>().into_bytes()
    };
    (1..sections.len()).map(without).collect()
}

#[test]
fn a_stack_without_one_of_its_sections_breaks_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let parser = PARSERS.iter().find(|parser| parser.name.starts_with("stack")).unwrap();
    let (ready, cases) = (ready_stacks(), stacks());
    let mut rng = Rng::new(number("DASK_INFRA_SEED", 1) as u64);
    let drawn = (0..number("DASK_INFRA_CASES", 60)).map(|_| rng.pick(&cases).clone());
    let stacks: Vec<Vec<u8>> = ready.into_iter().chain(drawn).collect();
    let inputs = stacks.iter().flat_map(|stack| without_a_section(stack));
    for input in inputs {
        let broken = run_parser(parser, &input, scratch.path());
        assert_eq!(broken, None, "{}", String::from_utf8_lossy(&input));
    }
}
