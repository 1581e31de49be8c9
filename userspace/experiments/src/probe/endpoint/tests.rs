use super::*;

fn pair() -> (Endpoint, Endpoint) {
    let endpoint = || Endpoint::start(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
    (endpoint(), endpoint())
}

#[test]
fn a_train_is_noted_datagram_by_datagram() {
    let (here, there) = pair();
    let train = Train {
        messages: 6,
        segments: 3,
        payload: 500,
        burst: 2,
        interval_ns: 2_000_000,
    };
    let (number, before) = (here.number(), clock::now());
    let sent = here.send(there.address().unwrap(), number, &train).unwrap();
    let receipts = there.take(number, train.datagrams(), Duration::from_secs(5));
    assert_eq!((sent.len(), receipts.len()), (6, 18));
    assert!(
        sent[4].at >= before + LEAD + 2 * train.interval_ns,
        "bursts keep their interval"
    );
    for receipt in &receipts {
        let burst = &sent[receipt.number as usize / 6 * 2];
        assert!(burst.at <= receipt.arrival && receipt.arrival <= receipt.read);
    }
    assert!(there.take(number, 0, Duration::ZERO).is_empty(), "taken once");
}

#[test]
fn only_the_last_of_n_is_answered() {
    let (here, there) = pair();
    let to = there.address().unwrap();
    let trip = here
        .round_trip(to, (5, 100_000, 64), Duration::from_secs(5))
        .unwrap()
        .unwrap();
    assert_eq!(trip.answer.number, 4);
    assert!(trip.last.at - trip.first.at >= 400_000);
    assert!(trip.answer.read > trip.last.at && trip.answer.turnaround > 0);
}

#[test]
fn nobody_answers() {
    let (here, _) = pair();
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = nobody.local_addr().unwrap();
    assert_eq!(
        here.round_trip(to, (1, 0, 64), Duration::from_millis(20))
            .unwrap(),
        None
    );
    assert_eq!(
        here.issue(to, (3, 0, 64), 1, clock::Work::learn(), Duration::from_millis(20))
            .unwrap(),
        None
    );
}

#[test]
fn requests_are_issued_with_computations_between() {
    let (here, there) = pair();
    let to = there.address().unwrap();
    let (start, end) = here
        .issue(
            to,
            (4, 200_000, 64),
            2,
            clock::Work::learn(),
            Duration::from_secs(5),
        )
        .unwrap()
        .unwrap();
    // Work is as long as was learned, or longer; learning may have met a faster processor.
    assert!(end - start >= 400_000, "{}", end - start);
}
