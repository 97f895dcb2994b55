//! A definition with one to three served versions, any of them stored, and objects of it in any served version:
//! whatever an edit makes of that, a thing has one identity, and an object that stays wanted stays the same one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::cases::check;
use super::laws::{self, Tally};
use super::player::{Player, StepResult, play};
use super::script::{Command, Edit, Script, Step};

const NAMES: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];
const OBJECTS: [&str; 2] = ["first", "second"];
const STACK: &str = "[stack]\nname = \"versions\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n\
                     [cluster]\nname = \"c\"\n\n[node_pool.system]\nmachine_type = \"e2-standard-4\"\n";
const SECTIONS: &str = "\n[manifest.kinds]\nfile = \"kinds.yaml\"\n\n[manifest.app]\nfile = \"app.yaml\"\ndefinitions = \"kinds.yaml\"\n";

/// The definition and its objects at one time.
#[derive(Clone, Debug)]
struct Shape {
    /// Of [`NAMES`], by place.
    served: Vec<usize>,
    stored: usize,
    /// Which served version each of [`OBJECTS`] is asked for in; `None`: it is not wanted.
    asked: [Option<usize>; 2],
}

fn shape() -> impl Strategy<Value = Shape> {
    let asked = || proptest::option::weighted(0.8, 0..3usize);
    // The newest is always served, as on any way to `v1`.
    (proptest::sample::subsequence(vec![0, 1], 0..=2), 0..3usize, asked(), asked()).prop_map(
        |(mut served, stored, one, two)| {
            served.push(2);
            Shape { served, stored, asked: [one, two] }
        },
    )
}

impl Shape {
    fn definition(&self) -> Value {
        let version = |place: usize| {
            json!({ "name": NAMES[place], "served": self.served.contains(&place), "storage": place == self.stored,
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "spec": { "type": "object", "properties": { "size": { "type": "integer" } } } } } } })
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "queues.example.com" },
            "spec": { "group": "example.com", "scope": "Namespaced",
                "names": { "kind": "Queue", "plural": "queues", "singular": "queue", "listKind": "QueueList" },
                "versions": (0..3).map(version).collect::<Vec<_>>() },
        })
    }

    fn objects(&self) -> String {
        let object = |(name, asked): (&str, Option<usize>)| {
            let version = NAMES[self.served[asked? % self.served.len()]];
            let object = json!({ "apiVersion": format!("example.com/{version}"), "kind": "Queue",
                "metadata": { "name": name, "namespace": "default" }, "spec": { "size": 1 } });
            Some(object.to_string())
        };
        OBJECTS.into_iter().zip(self.asked).filter_map(object).collect::<Vec<_>>().join("\n---\n")
    }

    fn edit(&self) -> Edit {
        let objects = self.objects();
        let sections = match objects.is_empty() {
            true => "\n[manifest.kinds]\nfile = \"kinds.yaml\"\n",
            false => SECTIONS,
        };
        let files = [("kinds.yaml", self.definition().to_string()), ("app.yaml", objects)];
        let files = files.into_iter().map(|(name, text)| (name.to_owned(), text));
        Edit { stack: format!("{STACK}{sections}"), files: files.collect::<BTreeMap<_, _>>() }
    }
}

fn script() -> impl Strategy<Value = Script> {
    prop::collection::vec(shape(), 2..4).prop_map(|shapes| {
        let steps = shapes
            .iter()
            .flat_map(|shape| [Step::Edit(shape.edit()), Step::Apply(Command::default())])
            .collect();
        Script { about: String::new(), steps, ..Script::default() }
    })
}

/// # Errors
/// The object that is another one now.
fn stays_the_same(player: &Player, done: &StepResult) -> Result<(), String> {
    let wanted = player.file.files.get("app.yaml").map(String::as_str).unwrap_or_default();
    let asked = |name: &str| wanted.contains(&format!("\"name\":\"{name}\""));
    let mut gone = done.before.removed_since(&done.after);
    match gone.find(|(_, thing)| thing.kind == "Queue" && asked(&thing.name)) {
        None => Ok(()),
        Some((_, thing)) => Err(format!("{thing} is still wanted and went")),
    }
}

#[test]
fn an_object_is_one_thing_in_whatever_version() {
    let tally = Tally::default();
    check("versions", 5, script().boxed(), |script| {
        play(script, async |player, step, done| {
            tally.step(step, done);
            if let Some(why) = done.refused.iter().cloned().chain(done.failures()).next() {
                return Err(why);
            }
            stays_the_same(player, done)?;
            laws::all(player, step, done).await
        })
    });
}
