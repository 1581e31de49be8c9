//! Eom and Hollingsworth 2000, Fig. 5: every number of every row of the worked example.

use super::Comparison;
use super::tables::{self, Row};
use crate::whatif::placement::ProcessName;
use crate::whatif::snapshot::EventRow;
use crate::whatif::table::Table as Times;
use crate::whatif::{Event, Kind, MessageId, Placement, Predictor, Scenario};

const FIGURE: &str = "Eom and Hollingsworth 2000, Fig. 5";

/// The events of Fig. 3 and their names, in the order of arrival.
fn events() -> Vec<(&'static str, Event)> {
    let table = tables::LBF_FIG3.table();
    let event = |row: Row<'_>| {
        // The figure has one message, from P3 to P1.
        let message = MessageId::of_number(1);
        let kind = match row.text("type") {
            "startRecv" => Kind::StartRecv { message: None },
            "endRecv" => Kind::EndRecv { message },
            "send" => Kind::Send {
                message,
                bytes: 0.0,
                to: None,
            },
            "exit" => Kind::Exit,
            _ => Kind::Compute,
        };
        let process = row.number("process")? as u32 - 1;
        let (cpu, line) = (row.number("cpu_us")?, row.number("arrival")? as u64);
        Some((
            row.text("event"),
            Event {
                process,
                cpu,
                kind,
                line,
            },
        ))
    };
    table.rows().filter_map(event).collect()
}

/// P1 and P2 share a processor, P3 has its own; messages take no time.
fn scenario() -> Option<Scenario> {
    let name = ProcessName::Number;
    let placement = Placement::new([(1.0, vec![name(1), name(2)]), (1.0, vec![name(3)])]).ok()?;
    let free = Some(Times::constant(0.0));
    Some(Scenario {
        placement,
        local: free.clone(),
        remote: free,
        bus: None,
        overhead: None,
        scheduler: None,
    })
}

pub(super) fn comparisons() -> Vec<Comparison> {
    scenario().map(|scenario| rows(&scenario)).unwrap_or_default()
}

fn rows(scenario: &Scenario) -> Vec<Comparison> {
    let printed = tables::LBF_FIG5.table();
    let events = events();
    let mut predictor = Predictor::new(scenario);
    let mut arriving = events.iter();
    let mut done = "";
    let mut all = Vec::new();
    for row in printed.rows() {
        // A row of the figure is several lines of the table, one per event that is held.
        let number = row.text("row");
        if number != done {
            done = number;
            if !row.text("arriving").is_empty() {
                let Some((_, event)) = arriving.next() else {
                    return all;
                };
                if predictor.push(*event).is_err() {
                    return all;
                }
            } else if !row.text("reported").is_empty() {
                predictor.advance();
            }
            for (group, column) in ["group_1_time_us", "group_2_time_us"].into_iter().enumerate() {
                let ours = predictor.prediction().group_time.get(group).copied();
                all.extend(compare(
                    &row,
                    column,
                    format!("row {number}, group {}", group + 1),
                    ours,
                ));
            }
        }
        let name = row.text("event");
        let line = events
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, event)| event.line);
        let held: Option<EventRow> = predictor
            .snapshot()
            .into_iter()
            .find(|held| Some(held.line) == line);
        if let Some(held) = held {
            for (column, what, ours) in [
                ("earliest_us", "earliest", held.earliest),
                ("remaining_us", "remaining", Some(held.remaining)),
                ("wait_us", "wait", held.wait),
            ] {
                all.extend(compare(
                    &row,
                    column,
                    format!("row {number}, {name} {what}"),
                    ours,
                ));
            }
        }
    }
    all
}

/// A printed cell and ours; nothing where neither has a number. A number that only one of them has
/// differs by infinity.
fn compare(row: &Row<'_>, column: &str, case: String, ours: Option<f64>) -> Option<Comparison> {
    let paper = row.number(column);
    if paper.is_none() && ours.is_none() {
        return None;
    }
    Some(Comparison {
        model: "whatif",
        source: FIGURE,
        case,
        unit: "us",
        paper: paper.unwrap_or(f64::INFINITY),
        ours: ours.unwrap_or(f64::INFINITY),
        tolerance: 0.0,
        reading: None,
        deviation: None,
    })
}
