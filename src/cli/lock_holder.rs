//! The identity of the process that runs this program, for the lock of a stack.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use apply::lock::{Holder, Liveness};

/// The clock that continues while the machine sleeps. Source: clock_gettime(2) of Linux, and of Darwin, where CLOCK_MONOTONIC
/// includes sleep.
#[cfg(any(target_os = "linux", target_os = "android"))]
const AWAKE_OR_NOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const AWAKE_OR_NOT: ClockId = ClockId::Monotonic;

/// Returns the identity of this process.
pub fn current() -> Holder {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = ["USER", "LOGNAME", "USERNAME"].into_iter().find_map(variable);
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let host =
        read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname")).or_else(|| variable("HOSTNAME"));
    let who = format!("{}@{}", user.as_deref().unwrap_or("somebody"), host.as_deref().unwrap_or("somewhere"));
    let pid = std::process::id();
    Holder {
        who,
        pid,
        process: boot_and_namespace()
            .zip(start_time(pid))
            .map(|(world, start)| format!("{world} {pid} {start}")),
    }
}

/// Returns the time since the machine started, including sleep.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(AWAKE_OR_NOT)).unwrap_or_default()
}

/// Returns the liveness of a process that [`current`] named.
pub fn liveness(process: &str) -> Liveness {
    let parts: Vec<&str> = process.rsplitn(3, ' ').collect();
    let [began, pid, place] = parts.as_slice() else { return Liveness::Unknown };
    let Ok(pid) = pid.parse() else { return Liveness::Unknown };
    match boot_and_namespace() {
        Some(here) if here == *place => match start_time(pid) {
            Some(start) if start == *began => Liveness::Yes,
            Some(_) | None => Liveness::No,
        },
        Some(_) | None => Liveness::Unknown,
    }
}

/// Returns the boot ID and the PID namespace. They distinguish the processes that this one sees from those of other
/// machines and containers.
fn boot_and_namespace() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.display()))
}

/// Returns when a process began, in ticks since the boot; `None` if it has ended. Source: proc(5), fields 3 and 22 of `stat`.
fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ended = matches!(fields.first(), Some(&"Z" | &"X"));
    fields.get(19).filter(|_| !ended).map(|ticks| (*ticks).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_that_ended_does_not() {
        let Holder { process: Some(process), .. } = current() else {
            println!("skipped: the system has no /proc");
            return;
        };
        assert_eq!(liveness(&process), Liveness::Yes);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let (place, _) = process.rsplit_once(' ').unwrap();
        let (place, _) = place.rsplit_once(' ').unwrap();
        let ended =
            format!("{place} {} {}", child.id(), start_time(child.id()).unwrap_or_else(|| "0".into()));
        child.wait().unwrap();
        assert_eq!(liveness(&ended), Liveness::No);
        assert_eq!(liveness("another-boot pid:[1] 1 2"), Liveness::Unknown);
        assert_eq!(liveness("nonsense"), Liveness::Unknown);
    }
}
