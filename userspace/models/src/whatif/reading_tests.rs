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
            for kind in [send, Kind::StartRecv, Kind::EndRecv { message: id(from) }] {
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
