//! Checks of `capacity`: the options to get the machines of a pool.

use crate::Nodes;
use crate::rules::Context;
use kinds::gke::node_pool::Capacity;
use kinds::gke::node_pool::Reservation;
use model::diag::{Code, Diagnostic};

/// Checks that the section does not set keys that the options themselves set.
pub(crate) fn option_keys(context: &mut Context<'_>) {
    for (path, pool) in context.pools().filter(|(_, pool)| !pool.capacity.is_empty()) {
        let keys = [
            ("spot", pool.spot, "\"spot\""),
            ("flex_start", pool.flex_start.is_some(), "\"flex-start\""),
            ("queued", pool.queued.is_some(), "\"queued\""),
        ];
        for (key, _, option) in keys.into_iter().filter(|(_, said, _)| *said) {
            let finding = Diagnostic::error(
                Code::CapacityBeside,
                format!("`{key}` and `capacity` both say how machines are bought"),
            );
            let finding = finding.at_value(path.key(key), "here").at_value(path.key("capacity"), "and here");
            context.say(finding.help(format!("remove `{key}`; the way {option} of `capacity` is the same")));
        }
        let named = pool.capacity.contains(&Capacity::Reservation);
        let what = match &pool.reservation {
            Some(Reservation::Any | Reservation::None) => {
                "each way of `capacity` says which reservations it uses"
            }
            Some(Reservation::Named(_)) if !named => "no way of `capacity` uses this reservation",
            Some(Reservation::Named(_)) | None => continue,
        };
        let finding = Diagnostic::error(Code::CapacityBeside, what);
        let finding = finding.at_value(path.key("reservation"), "here").at_value(path.key("capacity"), "");
        context.say(finding.help(match &pool.reservation {
            Some(Reservation::Named(_)) => "add \"reservation\" to `capacity`, or remove `reservation`",
            _ => "remove `reservation`, or name one and add \"reservation\" to `capacity`",
        }));
    }
}

/// Checks that each option is listed once, and that options which wait for machines come last.
pub(crate) fn option_order(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let at = |place: usize| path.key("capacity").index(place);
        for (place, option) in pool.capacity.iter().enumerate() {
            let word = option.word();
            let before = &pool.capacity[..place];
            if let Some(first) = before.iter().position(|other| other == option) {
                let finding = Diagnostic::error(Code::CapacityOrder, format!("\"{word}\" is tried once"));
                let finding = finding.at_value(at(first), "first").at_value(at(place), "again");
                context.say(finding.help("remove one of the two"));
                continue;
            }
            let waits = before.iter().position(|other| other.waits()).filter(|_| !option.waits());
            if let Some(waiting) = waits {
                let what =
                    format!("\"{word}\" is never tried: \"{}\" waits for machines", before[waiting].word());
                let finding = Diagnostic::error(Code::CapacityOrder, what);
                let finding = finding.at_value(at(waiting), "this way never lacks machines");
                context.say(finding.at_value(at(place), "").help(format!("move \"{word}\" before it")));
            }
        }
    }
}

/// Checks that the option "reservation" has a named reservation, and that a pool with a fallback starts with nodes, as a pool
/// without nodes never lacks machines.
pub(crate) fn option_requirements(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let place = |wanted: fn(Capacity) -> bool| pool.capacity.iter().position(|option| wanted(*option));
        let at = |place: usize| path.key("capacity").index(place);
        let reserved = place(|option| option == Capacity::Reservation);
        if let Some(reserved) = reserved.filter(|_| pool.reservation.is_none()) {
            let what = "the way \"reservation\" needs a reservation";
            let finding = Diagnostic::error(Code::CapacityNeeds, what).at_value(at(reserved), "");
            context.say(finding.help("add `reservation = { name = \"…\" }`"));
        }
        let starts_empty = matches!(pool.size(), Nodes::Fixed(0) | Nodes::Autoscaled { min: 0, .. });
        if let Some(tried) = place(|option| !option.waits()).filter(|_| starts_empty) {
            let what = "a pool that starts without nodes tries no ways: the first one always succeeds";
            let finding = Diagnostic::error(Code::CapacityNeeds, what);
            let finding = finding.at_value(path.key("nodes"), "no node at first").at_value(at(tried), "");
            context.say(finding.help(
                "set `nodes` to a number of at least 1, or `min` to at least 1; or keep only the ways that wait",
            ));
        }
        let none = matches!(pool.size(), Nodes::Fixed(0));
        if let Some(waits) =
            place(Capacity::waits).filter(|_| none && place(|option| !option.waits()).is_none())
        {
            let what = "machines that are waited for need a number of at least 1";
            let finding = Diagnostic::error(Code::CapacityNeeds, what).at_value(path.key("nodes"), "");
            context.say(finding.at_value(at(waits), "").help("set `nodes = { min = 0, max = 4 }`"));
        }
    }
}
