//! Which transfers wait for a time-out: eq. 5, 8, 9 and 14.

use super::*;

/// Eq. 8, 9 and 14 on Table II; the outcomes that need another message or program than the files have.
#[test]
fn table_2_with_other_messages() {
    for (case, message) in [
        ("table2-alltoall-b-18kB.yaml", 18_000.0),
        ("table2-alltoall-b-32kB.yaml", 32_000.0),
    ] {
        let mut input = parse(TABLE2_B);
        input.program.message = Some(ByteSize(message));
        let found = predict(&input).unwrap().retransmission_timeouts;
        assert_eq!(
            Some(u64::from(found)),
            expected(case)["retransmission_timeouts"].as_u64(),
            "{case}"
        );
    }
    let gather = predict(&parse(&TABLE2_B.replace("alltoall-b", "gather"))).unwrap();
    assert_eq!(
        Some(gather.delayed_transfers),
        expected("table2-gather.yaml")["retransmission_timeouts"].as_u64()
    );
}

/// `d(1) b(1)` = 251 us of 580.2 Mbit/s, 18 203.8 B; `d(4) b_c` = 455 us of 576.0 Mbit/s, 32 760 B.
#[test]
fn limits_of_table_2() {
    let mut input = parse(TABLE2_B);
    for (bytes, timeouts) in [
        (18_203.0, 0),
        (18_204.0, 1),
        (32_760.0, 1),
        (32_761.0, 2),
        (1e6, 2),
    ] {
        input.program.message = Some(ByteSize(bytes));
        assert_eq!(
            predict(&input).unwrap().retransmission_timeouts,
            timeouts,
            "{bytes} B"
        );
    }
}

/// Eq. 5 looks at the two heights only: what differs in between does not count.
#[test]
fn switches_between_distant_heights() {
    let mut parameters = tree(8, &[1.0, 1.0, 1.0], &[10.0, 20.0, 10.0]);
    let network = Network::new(&parameters, false).unwrap();
    assert!(network.different_switches(1, 2) && network.different_switches(2, 3));
    assert!(!network.different_switches(1, 3) && !network.different_switches(3, 1));
    parameters.links[2].bandwidth.0 /= 2.0;
    let network = Network::new(&parameters, false).unwrap();
    assert!(network.different_switches(1, 3) && network.different_switches(3, 1));
    assert!(!network.different_switches(3, 3));
}

/// All Isends of a gather start at 0, so none starts when another one ends (eq. 14).
#[test]
fn incast_has_no_time_outs_unless_overlapping_transfers_compete() {
    // Two switches of two nodes: bandwidth halves between them.
    let mut parameters = tree(4, &[1.0, 0.5], &[10.0, 10.0]);
    let gather = |parameters: &Parameters, bytes| collective(parameters, CollectiveKind::Gather, bytes);
    let printed = gather(&parameters, 1000.0);
    assert_eq!(
        (printed.retransmission_timeouts, printed.delayed_transfers),
        (0, 0)
    );
    // Three messages through the root's edge.
    assert!((printed.total_us - 3003.0).abs() < 1e-9);
    assert_eq!(printed.plogp_us, Some(3003.0));
    parameters.competitors = Competitors::Overlapping;
    let ours = gather(&parameters, 1000.0);
    assert_eq!((ours.retransmission_timeouts, ours.delayed_transfers), (1, 3));
    assert!((ours.total_us - (3003.0 + 10_000.0)).abs() < 1e-9);
    assert_eq!(ours.closed_form_us, None);
    // Three share the root's edge: each fills 10 us of a third.
    for (bytes, timeouts) in [(3.0, 0), (4.0, 1)] {
        assert_eq!(
            gather(&parameters, bytes).retransmission_timeouts,
            timeouts,
            "{bytes}"
        );
    }
    // One switch: nothing is lost.
    let mut one = tree(4, &[1.0, 1.0], &[10.0, 10.0]);
    one.competitors = Competitors::Overlapping;
    assert_eq!(gather(&one, 1000.0).retransmission_timeouts, 0);
}

/// Rank 1 sends to rank 0 while rank 2, behind another switch, starts to send there. Message and buffer are
/// those of rank 1 alone (eq. 8, 9), and the jitter is a limit that is not reached (eq. 14).
#[test]
fn a_transfer_that_starts_when_another_ends() {
    let timed_out = |start: f64, first: f64, second: f64, jitter: f64| {
        let parameters = Parameters {
            jitter: Micros(jitter),
            ..tree(4, &[1.0, 0.5], &[10.0, 10.0])
        };
        let send = |size| {
            OpInput::Isend(Send {
                to: 0,
                size: ByteSize(size),
            })
        };
        let ranks = vec![
            vec![],
            vec![send(first)],
            vec![OpInput::Compute(Micros(start)), send(second)],
            vec![],
        ];
        let program = ProgramInput {
            ranks: Some(ranks),
            collective: None,
            message: None,
            root: None,
        };
        let found = predict(&PlogptInput { parameters, program }).unwrap();
        let rto = |rank, op| found.operations.of_rank(rank).nth(op).unwrap().rto;
        assert!(!rto(2, 1), "nothing starts when the second one ends");
        rto(1, 0)
    };
    // The first one ends at 100.
    assert!(timed_out(100.0, 100.0, 1.0, 1.0));
    assert!(timed_out(100.9, 100.0, 1.0, 1.0));
    assert!(
        timed_out(99.5, 99.75, 1e3, 1.0),
        "slowed to its half for the last 0.25 us"
    );
    assert!(!timed_out(101.0, 100.0, 1.0, 1.0));
    assert!(!timed_out(90.0, 90.0, 1e3, 0.0));
    assert!(!timed_out(50.0, 75.0, 1e3, 1.0), "merely on its way");
    assert!(timed_out(50.0, 75.0, 1.0, 52.0));
    // d(1) b(1) is 10 B.
    assert!(!timed_out(10.0, 10.0, 1e3, 1.0));
    assert!(timed_out(11.0, 11.0, 1e3, 1.0));
}
