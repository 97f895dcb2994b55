//! Workers that restart and move on hosts by SSH, and a stack whose first host changes: nothing is lost on the way.

use std::path::PathBuf;

use crate::hosts::adaptive::Client;
use crate::hosts::ssh::{Lab, sshd_is_there};
use crate::real::{Part, needs};

/// Whoever has handed twelve numbers to the workers, which nobody else has.
fn client(lab: &Lab) -> Client {
    let mut client =
        Client::connected(&Part::Operator.program("python"), &lab.run(&["connect", "--json"]).expect(0).out);
    assert_eq!(client.says("put 12"), "put");
    client
}

/// Applies an edit that may delete these groups; nothing is lost, and nothing is left to do.
#[track_caller]
fn applies_whole(lab: &Lab, client: &mut Client, groups: &[&str], edit: &str) {
    let plan = lab.run(&["plan"]).expect(0);
    let consents = groups.iter().map(|name| format!("delete:dask_cluster.work.group.{name}"));
    let needed: Vec<String> = consents.filter(|consent| plan.out.contains(consent)).collect();
    let allow = needed.iter().flat_map(|consent| ["--allow", consent.as_str()]);
    let words: Vec<&str> = ["apply", "--auto-approve"].into_iter().chain(allow).collect();
    lab.run(&words).expect(0);
    assert_eq!(client.says("sum"), "66 {'finished'}", "{edit}");
    lab.nothing_to_do();
}

/// Records are on the first host: another one that is the first now knows nothing of what is there.
#[test]
#[ignore = "nightly: hosts_take_turns_so_that_no_data_is_lost runs on every change"]
fn the_first_host_does_not_leave_unseen() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let mut lab = Lab::new("replicas = 2", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    let [first, second] = [0, 1].map(|index| lab.host(index));

    // In another order.
    lab.user.edit(&format!("{first}, {second}"), &format!("{second}, {first}"));
    for words in [&["plan"][..], &["apply", "--auto-approve"], &["destroy", "--auto-approve"], &["status"]] {
        lab.run(words).expect(1).says("the home of this stack was n1").says("home = \"n1\"");
    }
    lab.user.edit("}]\n", "}]\nhome = \"n1\"\n");
    lab.nothing_to_do();

    // It is taken out.
    lab.user.edit(&format!("{second}, {first}"), &second);
    lab.user.edit("}]\nhome = \"n1\"\n", "}]\n");
    for words in [&["plan"][..], &["apply", "--auto-approve"], &["destroy", "--auto-approve"]] {
        lab.run(words).expect(1).says("the home of this stack was n1").says("say so: `gone");
    }

    // It burned down.
    lab.user.edit("}]\n", "}]\ngone = [\"n1\"]\n");
    lab.kill(0, "work-scheduler");
    lab.end(0);
    lab.run_anew(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"]).expect(0);
    lab.run_anew(&["status"]).expect(0).says("2 of 2 workers");
    lab.user.edit("}]\ngone = [\"n1\"]\n", "}]\n");
    lab.run_anew(&["plan", "--detailed-exitcode"]).expect(0);
    lab.run_anew(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!([lab.leftovers(1), lab.leftovers(2)].concat(), Vec::<PathBuf>::new());

    // It comes back after all.
    lab.serve(0);
    lab.user.edit("}]\n", &format!("}}, {first}]\nhome = \"n1\"\n"));
    lab.is_gone();
}

/// Workers of two hosts, one on each, hold what nobody else has, while they restart and move.
#[test]
fn hosts_take_turns_so_that_no_data_is_lost() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = 2, memory = \"500Mi\", hosts = [\"n1\", \"n2\"]", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    let mut client = client(&lab);
    for (from, to) in [
        ("\"500Mi\"", "\"450Mi\""),
        ("[\"n1\", \"n2\"]", "[\"n3\"]"),
        ("[\"n3\"]", "[\"n2\"]"),
        ("\"450Mi\", hosts = [\"n2\"]", "\"400Mi\", hosts = [\"n3\", \"n2\"]"),
        ("\"400Mi\", hosts = [\"n3\", \"n2\"]", "\"420Mi\", hosts = [\"n1\", \"n2\"]"),
        ("\"420Mi\", hosts = [\"n1\", \"n2\"]", "\"430Mi\", hosts = [\"n3\", \"n1\"]"),
    ] {
        lab.user.edit(from, to);
        lab.run(&["apply", "--auto-approve"]).expect(0);
        assert_eq!(client.says("sum"), "66 {'finished'}", "{from} {to}");
        lab.nothing_to_do();
        lab.run(&["status"]).expect(0).says("2 of 2 workers");
    }
    drop(client);
    lab.is_gone();
}

/// Workers of a Dask cluster and of its groups take over from each other, whichever of them comes, goes, restarts or moves.
#[test]
#[ignore = "nightly: hosts_take_turns_so_that_no_data_is_lost runs on every change"]
fn groups_take_over_what_others_hold() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let group = "[dask_cluster.work.group.more]\nreplicas = 1\nmemory = \"400Mi\"\nhosts = [\"n2\"]\n";
    let lab = Lab::new("replicas = 1, memory = \"400Mi\", hosts = [\"n1\"]", group);
    lab.run(&["apply", "--auto-approve"]).expect(0);
    let mut client = client(&lab);
    let other = |host: &str| {
        format!("[dask_cluster.work.group.other]\nreplicas = 1\nmemory = \"400Mi\"\nhosts = [\"{host}\"]\n")
    };
    let (here, there, far) = (other("n1"), other("n2"), other("n3"));
    for edits in [
        // The part of a Dask cluster on a host is there for its groups, too.
        &[("[\"n2\"]", "[\"n3\"]")][..],
        &[("[\"n3\"]", "[\"n1\", \"n2\"]")],
        &[("[\"n1\", \"n2\"]", "[\"n2\"]")],
        &[("replicas = 1, memory", "replicas = 0, memory"), ("group.more", "group.other")],
        &[("replicas = 0, memory", "replicas = 2, memory"), (&there, "")],
        // Of one host's two the last is also started again.
        &[("replicas = 2, memory = \"400Mi\"", "replicas = 1, memory = \"380Mi\"")],
        &[
            ("replicas = 1, memory", "replicas = 0, memory"),
            ("hosts = [\"n1\"] }\n", &format!("hosts = [\"n1\"] }}\n{here}")),
        ],
        &[("replicas = 0, memory = \"380Mi\"", "replicas = 1, memory = \"400Mi\""), (&here, "")],
        // The Dask cluster comes to a host for a group that takes over from it.
        &[
            ("replicas = 1, memory", "replicas = 0, memory"),
            ("hosts = [\"n1\"] }\n", &format!("hosts = [\"n1\"] }}\n{far}")),
        ],
        &[("replicas = 0, memory = \"400Mi\"", "replicas = 1, memory = \"390Mi\""), (&far, "")],
        // It would be started again as well.
        &[
            ("replicas = 1, memory = \"390Mi\"", "replicas = 0, memory = \"400Mi\""),
            ("hosts = [\"n1\"] }\n", &format!("hosts = [\"n1\"] }}\n{here}")),
        ],
    ] {
        edits.iter().for_each(|(from, to)| lab.user.edit(from, to));
        applies_whole(&lab, &mut client, &["more", "other"], &format!("{edits:?}"));
    }
    drop(client);
    lab.is_gone();
}

/// The Dask cluster has no workers of its own: its groups move, are renamed, restart together, and come while others restart.
#[test]
#[ignore = "nightly: hosts_take_turns_so_that_no_data_is_lost runs on every change"]
fn groups_alone_lose_nothing() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let group = |name: &str, memory: &str, host: &str| {
        format!(
            "[dask_cluster.work.group.{name}]\nreplicas = 1\nmemory = \"{memory}Mi\"\nhosts = [\"{host}\"]\n"
        )
    };
    let first = group("a", "400", "n2");
    let lab = Lab::new("replicas = 0, memory = \"400Mi\", hosts = [\"n1\"]", &first);
    lab.run(&["apply", "--auto-approve"]).expect(0);
    let mut client = client(&lab);
    let mut before = first;
    for after in [
        // To a host that the Dask cluster comes to for it, from one that it leaves.
        group("a", "400", "n3"),
        group("b", "400", "n2"),
        [group("c", "300", "n1"), group("d", "300", "n3")].concat(),
        // All restart, one group after the other.
        [group("c", "350", "n1"), group("d", "350", "n3")].concat(),
        [group("c", "300", "n1"), group("d", "300", "n3")].concat(),
        group("d", "300", "n3"),
        // The only worker restarts when another one is there.
        [group("d", "350", "n3"), group("a", "300", "n2")].concat(),
        group("d", "350", "n2"),
        [group("d", "300", "n3"), group("e", "300", "n1")].concat(),
    ] {
        lab.user.edit(&before, &after);
        applies_whole(&lab, &mut client, &["a", "b", "c", "d"], &after);
        before = after;
    }
    // Files that its groups brought to a host are deleted with the last group.
    let clusters = lab.leftovers(1).into_iter().filter(|path| path.ends_with("clusters/_/work.json"));
    assert_eq!(clusters.collect::<Vec<_>>(), Vec::<PathBuf>::new());
    drop(client);
    lab.is_gone();
}

/// Workers that cannot run under new terms: what the others hold stays, and another edit mends it.
#[test]
#[ignore = "nightly: hosts_take_turns_so_that_no_data_is_lost runs on every change"]
fn workers_that_do_not_come_up_end_no_others() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = 2, memory = \"300Mi\", hosts = [\"n1\"]", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    let mut client = client(&lab);
    lab.user.edit("300Mi", "20Mi");
    lab.run(&["apply", "--auto-approve"]).expect(1).says("those that run were not restarted");
    assert_eq!(client.says("sum"), "66 {'finished'}");
    lab.run(&["plan", "--detailed-exitcode"]).expect(2).says("dask_cluster.work");
    lab.user.edit("20Mi", "320Mi");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(client.says("sum"), "66 {'finished'}");
    lab.nothing_to_do();
    drop(client);
    lab.is_gone();
}
