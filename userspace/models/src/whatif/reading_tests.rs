//! Events as they are read, and what the engine says of those that do not fit together.

use super::placement::ProcessName;
use super::property_tests::{Program, message, run, scenario};
use super::*;

fn placement() -> Placement {
    Placement::new([
        (1.0, vec![ProcessName::Number(1)]),
        (1.0, vec![ProcessName::from("io")]),
    ])
    .unwrap()
}

fn read(line: &str) -> Result<Option<Event>, String> {
    LineReader::new()
        .read(line.as_bytes(), &placement())
        .map_err(|error| error.to_string())
}

#[test]
fn lines_are_read_with_escapes_and_either_spelling() {
    let event = read(
        r#" {"process": "1", "type": "send", "cpu_us": 1.5e1, "message": "a\"\u00e9", "bytes": 7, "to": "io", "tag": null}"#,
    );
    let event = event.unwrap().unwrap();
    assert_eq!((event.process, event.cpu, event.line), (0, 15.0, 1));
    let message = MessageId::of_name("a\"é".as_bytes());
    assert_eq!(
        event.kind,
        Kind::Send {
            message,
            bytes: 7.0,
            to: Some(1)
        }
    );
    let number = read(r#"{"process":"io","type":"endRecv","cpu_us":0,"message":12}"#)
        .unwrap()
        .unwrap();
    let text = read(r#"{"type":"end_recv","message":"12","cpu_us":0,"process":"io"}"#)
        .unwrap()
        .unwrap();
    assert_eq!(number, text);
    for (key, message) in [("", None), (r#","message":"x""#, Some(MessageId::of_name(b"x")))] {
        let line = format!(r#"{{"process":"io","type":"start_recv","cpu_us":0{key}}}"#);
        assert_eq!(read(&line).unwrap().unwrap().kind, Kind::StartRecv { message });
    }
    assert_eq!(read("  \r\n"), Ok(None));
}

#[test]
fn bad_lines_say_where_and_why() {
    let cases = [
        (
            r#"{"process": 9, "type": "exit", "cpu_us": 1}"#,
            "line 1, column 1: process 9 is in no group",
        ),
        (
            r#"{"process": 1, "type": "exit"}"#,
            "`cpu_us` is missing; an event of type exit",
        ),
        (r#"{"process": 1, "cpu_us": 1}"#, "`type` is missing"),
        (r#"{"type": "exit", "cpu_us": 1}"#, "`process` is missing"),
        (
            r#"{"process": 1, "type": "send", "cpu_us": 1, "bytes": 1}"#,
            "`message` is missing",
        ),
        (
            r#"{"process": 1, "type": "send", "cpu_us": 1, "message": 1}"#,
            "`bytes` is missing",
        ),
        (
            r#"{"process": 1, "type": "end_recv", "cpu_us": 1}"#,
            "`message` is missing",
        ),
        (
            r#"{"process": 1, "type": "jump", "cpu_us": 1}"#,
            "`jump` is unknown",
        ),
        (
            r#"{"process": 1, "type": "exit", "cpu_us": -1}"#,
            "line 1, column 42: `cpu_us`: -1 is not allowed",
        ),
        (
            r#"{"process": 1, "type": "exit", "cpu_us": "1"}"#,
            "`cpu_us`: expected a number",
        ),
        (
            r#"{"process": 1, "type": "exit", "cpu_us": 1e999}"#,
            "must be finite",
        ),
        (r#"{"process": 1, "type": "exit", "cpu": 1}"#, "unknown key `cpu`"),
        (r#"{"process": 1, "process": 1}"#, "`process` is given twice"),
        (
            r#"{"process": [1], "type": "exit"}"#,
            "expected a string or a number",
        ),
        (
            r#"{"process": 1.5, "type": "exit", "cpu_us": 1}"#,
            "`process`: expected a string or a whole number",
        ),
        (
            r#"{"process": 1, "type": "exit", "cpu_us": 1} x"#,
            "expected the end of the line",
        ),
        (r#"{"process": 1, "type": "exit""#, "expected `,` or `}`"),
        (r#"{"process": "1"#, "expected the closing"),
        ("not json", "expected `{`"),
    ];
    for (line, expected) in cases {
        let error = read(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn a_receive_without_a_send_is_an_error_with_its_line() {
    let identity = scenario(&[0, 1], 1.0, 0.0);
    let mut predictor = Predictor::new(&identity);
    let receive = Event {
        process: 0,
        cpu: 0.0,
        kind: Kind::EndRecv { message: message(7) },
        line: 3,
    };
    predictor.push(receive).unwrap();
    predictor
        .push(Event {
            process: 1,
            cpu: 1.0,
            kind: Kind::Exit,
            line: 4,
        })
        .unwrap();
    while predictor.advance().is_some() {}
    assert!(matches!(
        predictor.deadlock(),
        Some(PredictionError::NeverSent { line: 3, .. })
    ));
    predictor.end_of_events();
    assert!(
        predictor
            .finish()
            .unwrap_err()
            .to_string()
            .starts_with("line 3: process 0 waits")
    );
    let late = predictor.push(Event {
        process: 1,
        cpu: 1.0,
        kind: Kind::Exit,
        line: 5,
    });
    assert!(
        late.unwrap_err()
            .to_string()
            .starts_with("line 5: process 1 has exited")
    );
}

#[test]
fn message_ids_may_be_used_again() {
    // The k-th send meets the k-th receive of the same id.
    let scenario = scenario(&[0, 1], 10.0, 0.0);
    let mut events = Vec::new();
    for round in 0..3 {
        let line = round * 2 + 1;
        let send = Kind::Send {
            message: message(1),
            bytes: 0.0,
            to: None,
        };
        events.push(Event {
            process: 0,
            cpu: 5.0,
            kind: send,
            line,
        });
        events.push(Event {
            process: 1,
            cpu: 1.0,
            kind: Kind::EndRecv { message: message(1) },
            line: line + 1,
        });
    }
    let (found, ..) = run(&Program { processes: 2, events }, &scenario);
    assert_eq!(found.group_time, [15.0, 26.0]);
}

/// Times of a run in which process 0 waits for a message of 2, and 1 computes meanwhile.
fn waiting(groups: &[u32], awaited: Option<MessageId>, then: &[(u32, f64, Kind)]) -> Vec<(u32, f64)> {
    let mut predictor = Predictor::new(&scenario(groups, 10.0, 0.0));
    let mut events = vec![
        (0, 1.0, Kind::StartRecv { message: awaited }),
        (2, 20.0, Kind::KeepAlive),
        (1, 5.0, Kind::Compute),
    ];
    events.extend(then);
    let mut times = Vec::new();
    for (line, (process, cpu, kind)) in (1..).zip(events) {
        let event = Event {
            process,
            cpu,
            kind,
            line,
        };
        predictor.push(event).unwrap();
        assert_eq!(predictor.deadlock(), None);
        while let Some(report) = predictor.advance() {
            times.push((report.event.process, report.time));
        }
    }
    times
}

#[test]
fn a_process_that_waits_holds_up_nobody_until_its_message_is_sent() {
    let (awaited, sent) = (Some(message(1)), message(1));
    let compute = |process| (process, 20.0, Kind::Compute);
    let send = Kind::Send {
        message: sent,
        bytes: 0.0,
        to: None,
    };
    let apart = [0, 1, 2];
    assert_eq!(waiting(&apart, None, &[compute(1)]), [(0, 1.0)]);
    assert_eq!(
        waiting(&apart, awaited, &[compute(1)]),
        [(0, 1.0), (1, 5.0), (2, 20.0)]
    );
    // What 0 does once its message has been sent must be known before the others go on.
    let mut then = vec![compute(1), (2, 2.0, send), compute(1), compute(2)];
    let before = [(0, 1.0), (1, 5.0), (2, 20.0), (2, 22.0)];
    assert_eq!(waiting(&apart, awaited, &then), before);
    then.extend([(0, 3.0, Kind::EndRecv { message: sent }), (0, 0.0, Kind::Exit)]);
    let after = [(1, 25.0), (0, 35.0), (0, 35.0), (2, 42.0)];
    assert_eq!(
        waiting(&apart, awaited, &then),
        [&before[..], &after[..]].concat()
    );
    // It shares its processor with 1 only while it computes.
    let times = waiting(&[0, 0, 1], awaited, &[compute(1)]);
    assert_eq!(times, [(0, 2.0), (1, 6.0), (2, 20.0)]);
}

#[test]
fn a_process_may_end_in_its_receive() {
    let (mine, other) = (message(1), message(2));
    let exit = (0, 0.0, Kind::Exit);
    let send = |message| {
        let to = None;
        (
            2,
            2.0,
            Kind::Send {
                message,
                bytes: 0.0,
                to,
            },
        )
    };
    let times = waiting(
        &[0, 1, 2],
        Some(mine),
        &[exit, send(mine), (1, 20.0, Kind::Exit), (2, 0.0, Kind::Exit)],
    );
    assert_eq!(
        times,
        [
            (0, 1.0),
            (1, 5.0),
            (0, 1.0),
            (2, 20.0),
            (2, 22.0),
            (2, 22.0),
            (1, 25.0)
        ]
    );
    // Or receive something else.
    let end = (0, 0.0, Kind::EndRecv { message: other });
    let times = waiting(
        &[0, 1, 2],
        Some(mine),
        &[end, send(other), (1, 20.0, Kind::Compute), (2, 0.0, Kind::Exit)],
    );
    assert_eq!(
        times,
        [(0, 1.0), (1, 5.0), (2, 20.0), (2, 22.0), (2, 22.0), (1, 25.0)]
    );
}

#[test]
fn memory_is_bounded_by_what_is_pending() {
    // A ring of 10 processes, each event consumed as soon as its neighbors' are there.
    let groups: Vec<u32> = (0..10).collect();
    let scenario = scenario(&groups, 2.0, 0.0);
    let mut predictor = Predictor::new(&scenario);
    for round in 0..2000_u64 {
        for process in 0..10_u32 {
            let to = (process + 1) % 10;
            let from = (process + 9) % 10;
            let id = |sender: u32| MessageId::of_number(round * 10 + u64::from(sender));
            let send = Kind::Send {
                message: id(process),
                bytes: 8.0,
                to: Some(to),
            };
            for kind in [
                send,
                Kind::StartRecv { message: None },
                Kind::EndRecv { message: id(from) },
            ] {
                predictor
                    .push(Event {
                        process,
                        cpu: 1.0,
                        kind,
                        line: 1,
                    })
                    .unwrap();
                while predictor.advance().is_some() {}
            }
        }
    }
    let counters = predictor.counters();
    assert!(
        counters.most_held <= 60 && counters.in_flight <= 20,
        "{counters:?}"
    );
}
