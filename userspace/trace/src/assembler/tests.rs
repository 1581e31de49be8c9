//! Records as processes write them, and the lines they become.

use crate::record::Collective;

use super::*;

const MILLI: u64 = 1_000_000;

fn writer(name: &str, pid: u32) -> Writer {
    Writer {
        machine: 0,
        pid,
        pid_namespace: 1,
        net_namespace: 1,
        cost_ns: 100,
        name: name.to_owned(),
        host: "here".to_owned(),
    }
}

fn record(thread: u32, cpu_ns: u64, event: Event) -> Record {
    Record {
        thread,
        cpu_ns,
        time_ns: 0,
        event,
    }
}

/// A socket's own address and its peer's.
fn addresses(ports: [u16; 2], cookie: u64) -> [Event; 2] {
    let (descriptor, address, [port, peer]) = (3, [0, 0xffff_0a4d_0001], ports);
    [
        Event::Local {
            port,
            descriptor,
            address,
            cookie,
        },
        Event::Remote {
            port: peer,
            descriptor,
            address,
            cookie,
        },
    ]
}

fn sent(bytes: u64, before: u64) -> Event {
    Event::Sent {
        descriptor: 3,
        bytes,
        before,
    }
}

fn taken(bytes: u64, before: u64) -> Event {
    Event::Taken {
        descriptor: 3,
        bytes,
        before,
    }
}

const CLOSED: Event = Event::Closed { descriptor: 3 };

fn send(bytes: u64, request: u64) -> Event {
    Event::Send {
        peer: 1,
        tag: 7,
        communicator: 9,
        bytes,
        request,
    }
}

const POSTED: Event = Event::Posted {
    communicator: 9,
    request: 55,
};

fn complete(peer: i32, tag: i32, request: u64) -> Event {
    Event::Complete { peer, tag, request }
}

fn collective(which: Collective, bytes: u64, request: u64) -> Event {
    Event::Collective {
        which: which as u16,
        root: 0,
        communicator: 9,
        bytes,
        request,
    }
}

fn lines(assembler: &mut Assembler) -> Vec<String> {
    let text = String::from_utf8(assembler.take_lines()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Starts `ranks` processes of MPI.
fn world(ranks: u32) -> Assembler {
    let mut assembler = Assembler::default();
    for rank in 0..ranks {
        assembler.source(writer("solver", 100 + rank));
        let source = rank as usize;
        let events = [
            Event::MpiStart { rank },
            Event::Communicator {
                groups: 1,
                size: ranks,
                communicator: 9,
            },
            Event::Members {
                count: ranks as u16,
                communicator: 9,
                ranks: [0, 1, 2, 3, 4, 5],
            },
        ];
        for event in events {
            assembler.record(source, record(1, MILLI, event), 0);
        }
    }
    assembler
}

#[test]
fn messages_between_ranks() {
    let mut all = world(2);
    all.record(0, record(1, 3 * MILLI, send(800, 0)), 0);
    all.record(1, record(1, MILLI, POSTED), 0);
    all.record(1, record(1, 2 * MILLI, complete(0, 7, 55)), 0);
    all.record(0, record(1, 4 * MILLI, Event::MpiEnd), 0);
    all.finish(0);
    assert_eq!(
        lines(&mut all),
        [
            r#"{"process": 0, "type": "send", "cpu_us": 2000.000, "message": "0>1:7", "bytes": 800, "to": 1}"#,
            r#"{"process": 1, "type": "start_recv", "cpu_us": 1000.000, "message": "0>1:7"}"#,
            r#"{"process": 1, "type": "end_recv", "cpu_us": 0.000, "message": "0>1:7"}"#,
            r#"{"process": 0, "type": "exit", "cpu_us": 1000.000}"#,
            r#"{"process": 1, "type": "exit", "cpu_us": 0.000}"#,
        ]
    );
}

#[test]
fn cpu_times_add_up_to_the_clocks() {
    let mut all = world(2);
    all.record(0, record(1, 3 * MILLI, send(800, 0)), 0);
    all.record(0, record(1, 5 * MILLI, Event::KeepAlive), 0);
    all.record(0, record(1, 6 * MILLI, Event::Paused), 0);
    all.record(0, record(1, 9 * MILLI, Event::Resumed), 0);
    all.record(1, record(1, 2 * MILLI, POSTED), 0);
    all.record(1, record(1, 4 * MILLI, complete(0, 7, 55)), 0);
    all.record(0, record(1, 11 * MILLI, Event::MpiEnd), 0);
    all.finish(0);
    let mut sums = [0.0; 2];
    for line in lines(&mut all) {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        sums[event["process"].as_u64().unwrap() as usize] += event["cpu_us"].as_f64().unwrap();
    }
    // From MPI_Init, at 1 ms, on; three of rank 0's went by unrecorded.
    assert_eq!(sums, [7000.0, 3000.0]);
    let told: Vec<f64> = all.processes().iter().map(|process| process.cpu_us).collect();
    assert_eq!(told, sums);
}

#[test]
fn completions_of_sends_and_cancelled_receives_are_no_events() {
    let mut all = world(2);
    all.record(0, record(1, MILLI, POSTED), 0);
    all.record(0, record(1, MILLI, complete(-1, 0, 55)), 0);
    all.record(0, record(1, MILLI, send(8, 55)), 0);
    all.record(0, record(1, MILLI, complete(1, 7, 55)), 0);
    assert_eq!(lines(&mut all).len(), 1);
}

#[test]
fn a_collective_that_does_not_wait() {
    let mut all = world(2);
    all.record(0, record(1, MILLI, collective(Collective::AllToAll, 64, 77)), 0);
    assert_eq!(
        lines(&mut all),
        [r#"{"process": 0, "type": "send", "cpu_us": 0.000, "message": "0>1:c", "bytes": 64, "to": 1}"#]
    );
    all.record(0, record(1, 2 * MILLI, complete(0, 0, 77)), 0);
    assert_eq!(lines(&mut all).len(), 2);
}

/// How many sends, ends of receives and exits there are.
fn counts(assembler: &mut Assembler) -> [usize; 3] {
    let text = lines(assembler).join("\n");
    ["\"send\"", "\"end_recv\"", "\"exit\""].map(|what| text.matches(what).count())
}

#[test]
fn what_a_killed_process_has_sent_is_sent() {
    let mut all = world(3);
    all.record(0, record(1, MILLI, collective(Collective::Barrier, 0, 0)), 0);
    // It went on: the others have come to the barrier.
    all.record(0, record(1, MILLI, POSTED), 0);
    all.finish(0);
    assert_eq!(counts(&mut all), [4, 2, 1 + 2]);
}

const RECEIVED: Event = Event::Received {
    peer: 1,
    tag: 7,
    communicator: 9,
};

#[test]
fn a_call_in_which_its_process_ended_has_taken_nothing() {
    for begun in [RECEIVED, collective(Collective::Barrier, 0, 0)] {
        // Killed, or by a signal handler that calls `exit`; the other rank may still be there.
        for end in [None, Some(Event::Exit), Some(Event::ThreadExit)] {
            let mut all = world(2);
            all.record(0, record(1, MILLI, begun), 0);
            if let Some(end) = end {
                all.record(0, record(1, 2 * MILLI, end), 0);
            }
            all.record(1, record(1, MILLI, Event::MpiEnd), 0);
            all.settle(0);
            all.finish(0);
            let [sends, receives, _] = counts(&mut all);
            assert_eq!(
                (sends, receives),
                (usize::from(begun != RECEIVED), 0),
                "{begun:?} {end:?}"
            );
        }
    }
}

#[test]
fn a_receive_is_told_as_soon_as_its_message_is() {
    let mut all = world(2);
    all.record(0, record(1, MILLI, RECEIVED), 0);
    all.record(0, record(1, 2 * MILLI, Event::Exit), 0);
    all.settle(0);
    // That it begins is told at once.
    let begun = r#"{"process": 0, "type": "start_recv", "cpu_us": 0.000, "message": "1>0:7"}"#;
    assert_eq!(lines(&mut all), [begun]);
    let sent = Event::Send {
        peer: 0,
        tag: 7,
        communicator: 9,
        bytes: 8,
        request: 0,
    };
    all.record(1, record(1, MILLI, sent), 0);
    all.settle(0);
    let found = lines(&mut all);
    let kinds = ["send", "end_recv", "exit"].map(|kind| format!("\"{kind}\""));
    assert!(
        found.len() == 3 && found.iter().zip(kinds).all(|(line, kind)| line.contains(&kind)),
        "{found:?}"
    );
}

/// Two programs joined by a connection: `client` is source 0, `server` 1.
fn connected() -> Assembler {
    connected_after(|_| ())
}

/// As [`connected`], with something between the two ends.
fn connected_after(between: impl Fn(&mut Assembler)) -> Assembler {
    let mut all = Assembler::default();
    for (source, name, ports) in [(0, "client", [1000, 80]), (1, "server", [80, 1000])] {
        all.source(writer(name, 100 + source));
        for address in addresses(ports, 7 + u64::from(source)) {
            all.record(source as usize, record(1, 0, address), 0);
        }
        if source == 0 {
            between(&mut all);
        }
    }
    all
}

#[test]
fn bytes_of_a_connection() {
    let mut all = connected();
    // The receiver's record comes first, and waits.
    all.record(1, record(1, 2000, taken(100, 1000)), 0);
    assert_eq!(lines(&mut all).len(), 0);
    all.record(0, record(1, 5000, sent(100, 3000)), 0);
    all.settle(0);
    assert_eq!(
        lines(&mut all),
        [
            r#"{"process": "client.1", "type": "send", "cpu_us": 3.000, "message": 0, "bytes": 100, "to": "server.1"}"#,
            r#"{"process": "server.1", "type": "start_recv", "cpu_us": 1.000, "message": 0}"#,
            r#"{"process": "server.1", "type": "end_recv", "cpu_us": 1.000, "message": 0}"#,
        ]
    );
}

#[test]
fn a_long_conversation_in_the_worst_order() {
    let mut all = connected();
    for round in 0..20 {
        all.record(1, record(1, round, taken(10, round)), 0);
        all.record(1, record(1, round, sent(10, round)), 0);
    }
    for round in 0..20 {
        all.record(0, record(1, round, sent(10, round)), 0);
        all.record(0, record(1, round, taken(10, round)), 0);
    }
    all.settle(0);
    assert_eq!(lines(&mut all).len(), 2 * 20 * 3);
}

#[test]
fn a_connection_that_is_closed_before_its_peer_is_seen() {
    let mut all = connected_after(|all| {
        all.record(0, record(1, 0, sent(10, 0)), 0);
        all.record(0, record(1, 0, CLOSED), 0);
        all.record(0, record(1, 0, Event::Exit), 0);
    });
    all.record(1, record(1, 0, taken(10, 0)), 0);
    all.settle(0);
    assert_eq!(lines(&mut all).len(), 4);
}

#[test]
fn a_descriptor_means_what_it_meant_when_it_was_used() {
    let mut all = Assembler::default();
    for (source, name) in [(0, "client"), (1, "server")] {
        all.source(writer(name, 100 + source));
    }
    let open = |all: &mut Assembler, source: usize, ports: [u16; 2], cookie: u64| {
        for address in addresses(ports, cookie) {
            all.record(source, record(1, 0, address), 0);
        }
    };
    open(&mut all, 0, [1000, 80], 1);
    all.record(0, record(1, 0, sent(10, 0)), 0);
    all.record(0, record(2, 0, CLOSED), 0);
    open(&mut all, 0, [1001, 81], 2);
    open(&mut all, 1, [80, 1000], 3);
    all.settle(0);
    all.record(1, record(1, 0, taken(10, 0)), 0);
    all.settle(0);
    assert_eq!(lines(&mut all).len(), 3);
}

#[test]
fn a_peer_that_is_not_traced_is_not_waited_for_long() {
    let mut all = Assembler::default();
    all.source(writer("client", 100));
    for address in addresses([80, 80], 7) {
        all.record(0, record(1, 0, address), 0);
    }
    all.record(0, record(1, 5000, sent(100, 3000)), 0);
    all.record(0, record(1, 9000, Event::Exit), 0);
    all.settle(1);
    assert_eq!(lines(&mut all).len(), 0);
    all.settle(1 + PEER_PATIENCE_NS);
    // It did nothing that the model knows, so it is no process of it.
    assert_eq!((lines(&mut all).len(), all.outside), (0, 1));
}

#[test]
fn another_program_in_the_same_process() {
    let mut all = connected();
    all.record(0, record(1, 5000, sent(100, 3000)), 0);
    all.source(writer("next", 100));
    let found = lines(&mut all);
    assert_eq!(found.len(), 2);
    assert!(found[1].contains("exit"), "{found:?}");
}

#[test]
fn threads_are_processes_of_their_own() {
    let mut all = connected();
    all.record(0, record(1, 5000, sent(100, 3000)), 0);
    all.record(0, record(2, 700, sent(100, 500)), 0);
    all.record(0, record(2, 900, Event::ThreadExit), 0);
    let found = lines(&mut all);
    assert_eq!(found.len(), 3);
    assert!(found[1].starts_with(r#"{"process": "client.1/2", "type": "send", "cpu_us": 0.500"#));
    assert!(found[2].starts_with(r#"{"process": "client.1/2", "type": "exit", "cpu_us": 0.400"#));
}
