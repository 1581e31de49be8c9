use proptest::prelude::*;
use strum::VariantNames as _;

use super::*;

type Columns = Vec<(Column, Vec<u64>)>;

fn samples(text: &str, format: Format) -> (Vec<u64>, Columns, u64) {
    let Recording { track, length, .. } = read(text, format).unwrap();
    match track {
        Track::Samples { at, columns } => (at, columns, length),
        Track::Opportunities(_) => panic!("opportunities"),
    }
}

fn refused(text: &str, format: Format) -> String {
    read(text, format).unwrap_err().to_string()
}

#[test]
fn a_line_of_mahimahi_is_an_opportunity() {
    let recording = read("0\n3\n3\r\n7\n", Format::Mahimahi).unwrap();
    let opportunities = [0, 3, 3, 7].map(|at| at * 1_000_000).to_vec();
    assert_eq!(recording.track, Track::Opportunities(opportunities));
    assert!(recording.length == 7_000_000 && recording.endless);
    for (text, said) in [
        ("", "1:1: the trace is empty"),
        ("5\n\n6\n", "2:1: `` is not a whole number"),
        ("5\n4\n", "2:1: 4 is before 5"),
        ("5\n  x7\n", "2:3: `x7` is not a whole number"),
        ("0\n", "1:1: the trace ends at 0 ms"),
        ("99999999999999999\n", "look at its unit"),
    ] {
        let error = refused(text, Format::Mahimahi);
        assert!(error.starts_with(said) || error.contains(said), "{error}");
    }
}

#[test]
fn a_table_has_units_in_its_header_or_cells() {
    let text = "# recorded\ntime [s],latency (ms),bandwidth_Mbit/s,loss %,buffer [KiB],jitter\n\
                100,20,10.5,0.1,64,1ms\n100.5,,0,0,64,1500us\n\n101.25,30.000001,unlimited,100,64,0s\n";
    let (at, columns, length) = samples(text, Format::Csv);
    assert_eq!(at, [0, 500_000_000, 1_250_000_000]);
    assert_eq!(length, 2_000_000_000);
    let [latency, bandwidth, loss, buffer, jitter] = columns.try_into().unwrap();
    assert_eq!(
        latency,
        (Column::Latency, vec![20_000_000, 20_000_000, 30_000_001])
    );
    assert_eq!(
        bandwidth,
        (Column::Bandwidth, vec![10_500_000, 0, Column::UNLIMITED])
    );
    assert_eq!(loss, (Column::Loss, vec![1_000_000, 0, 1_000_000_000]));
    assert_eq!(buffer, (Column::BufferBytes, vec![65_536; 3]));
    assert_eq!(jitter, (Column::Jitter, vec![1_000_000, 1_500_000, 0]));
    // As `perturb measure --trace` writes it.
    let measured = "time,latency,bandwidth,loss\n0s,20.014ms,9.998Mbit/s,0%\n100ms,20.1ms,10Mbit/s,100%\n";
    let (at, columns, _) = samples(measured, Format::Csv);
    assert_eq!(at, [0, 100_000_000]);
    assert_eq!(columns[0].1, [20_014_000, 20_100_000]);
    assert_eq!(columns[1].1, [9_998_000, 10_000_000]);
    assert_eq!(columns[2].1, [0, 1_000_000_000]);
    for (text, said) in [
        ("0,1\n", "1:1: `0` is no column: the first line names them"),
        ("time [s],rate [bit/s]\n", "1:10: `rate` is no column"),
        ("time [s],rate [bit/s]\n", "did you mean `bandwidth`?"),
        (
            "time [s],latency [mbit]\n",
            "1:10: `mbit` is no unit here; write a duration",
        ),
        ("latency [ms]\n1\n", "there is no column `time`"),
        ("time [s]\n1\n", "only the time is there"),
        ("time [s],latency\n0,1ms\n1,5\n", "3:3: `5` has no unit"),
        ("time [s],latency [ms]\n0,1\n0,2\n", "3:1: this time is not after"),
        ("time [s],latency [ms]\n0,-1\n", "2:3: `-1` is not a duration"),
        ("time [s],latency [ms]\n0,\n", "2:3: there is no value"),
        (
            "time [s],latency [ms]\n0\n",
            "2:2: the line ends before its column 2",
        ),
        ("time [s],latency [ms]\n0,1,2\n", "2:5: this is one column more"),
        ("time [s],loss [%]\n0,101\n", "2:3: a share is at most 100%"),
        ("time [s],latency [s]\n0,1e300\n", "2:3: the number is too large"),
        ("time [s],latency [ms]\n", "no row follows"),
    ] {
        let error = refused(text, Format::Csv);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn theaterq_has_two_forms() {
    let (at, columns, length) = samples(
        "KEEP,...\n1000,20000,8000000,0,10\n500,0,0,4294967295,1\n",
        Format::TheaterQ,
    );
    assert_eq!((at, length), (vec![0, 1_000_000], 1_500_000));
    assert_eq!(columns[0], (Column::Latency, vec![20_000, 0]));
    assert_eq!(
        columns[1],
        (Column::Bandwidth, vec![8_000_000, Column::UNLIMITED])
    );
    assert_eq!(columns[2], (Column::Loss, vec![0, 1_000_000_000]));
    assert_eq!(columns[3], (Column::BufferBytes, vec![15_140, 1514]));
    assert_eq!(columns.len(), 4);
    let (_, columns, _) = samples("1000,20000,3000,8000000,0,10,0,0,0\n", Format::TheaterQ);
    assert_eq!(columns[4], (Column::Jitter, vec![3000]));
    for (text, said) in [
        ("1,2,3\n", "1:1: the line has 3 numbers"),
        (
            "1,2,3,4,5\n1,2,3,4,5,0,0,0\n",
            "2:1: the line has 8 numbers, and those before it 5",
        ),
        ("1,2,x,4,5\n", "1:5: `x` is not a whole number"),
        ("0,2,3,4,5\n", "is kept for 0 us"),
        ("1,2,3,4,5,6,7,8\n", "the entry duplicates packets"),
        ("1,2,3,4294967296,5\n", "a loss of 100%"),
        ("no line\n", "1:1: no line begins with a number"),
    ] {
        let error = refused(text, Format::TheaterQ);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn models_of_netem_trace_are_written_out() {
    let human = r#"{"RepeatedBwPatternConfig":{"pattern":[{"TraceBwConfig":{"pattern":
        [["1ms",["2Mbps","4Mbps 500kbps"]],["2ms",["1Mbps"]]]}},{"StaticBwConfig":{"bw":"0bps"}}],"count":0}}"#;
    let plain = r#"{"RepeatedBwPatternConfig":{"pattern":[{"TraceBwConfig":{"pattern":
        [[{"secs":0,"nanos":1000000},[{"gbps":0,"bps":2000000},{"gbps":0,"bps":4500000}]],
        [{"secs":0,"nanos":2000000},[{"gbps":0,"bps":1000000}]]]}},
        {"StaticBwConfig":{"bw":{"gbps":0,"bps":0},"duration":{"secs":1,"nanos":0}}}],"count":0}}"#;
    let recording = read(human, Format::NetemTrace).unwrap();
    assert_eq!(recording, read(plain, Format::NetemTrace).unwrap());
    assert!(recording.endless);
    let (at, columns, length) = samples(human, Format::NetemTrace);
    assert_eq!(
        (at, length),
        (vec![0, 1_000_000, 2_000_000, 4_000_000], 1_004_000_000)
    );
    assert_eq!(
        columns,
        [(Column::Bandwidth, vec![2_000_000, 4_500_000, 1_000_000, 0])]
    );
    let loss = r#"{"RepeatedLossPatternConfig":{"pattern":[{"StaticLossConfig":{"loss":[0.1],"duration":"1s 500ms"}}],"count":2}}"#;
    let (at, columns, _) = samples(loss, Format::NetemTrace);
    assert_eq!(
        (at, columns),
        (vec![0, 1_500_000_000], vec![(Column::Loss, vec![100_000_000; 2])])
    );
    for (text, said) in [
        ("{", "1:1: EOF"),
        (r#"{"NormalizedBwConfig":{}}"#, "it draws random numbers"),
        (
            r#"{"StaticLossConfig":{"loss":[0.1,0.2]}}"#,
            "use `gilbert_elliott`",
        ),
        (r#"{"StaticBwConfig":{"bw":"12"}}"#, "has no known unit"),
        (
            r#"{"RepeatedBwPatternConfig":{"pattern":[],"count":9}}"#,
            "the trace is empty",
        ),
        (
            r#"{"RepeatedBwPatternConfig":{"pattern":[{"StaticBwConfig":{}}],"count":99999999}}"#,
            "more than 1000000 entries",
        ),
        (
            r#"{"RepeatedBwPatternConfig":{"pattern":[{"StaticBwConfig":{}},{"StaticLossConfig":{}}],"count":1}}"#,
            "not several of them",
        ),
    ] {
        let error = refused(text, Format::NetemTrace);
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_million_lines_take_about_a_second() {
    use std::fmt::Write as _;
    let mut mahimahi = String::new();
    let mut csv = String::from("time [s],latency [ms],bandwidth [Mbit/s],loss [%]\n");
    let mut theaterq = String::new();
    for line in 1..=MAX_SAMPLES {
        writeln!(mahimahi, "{line}").unwrap();
        writeln!(csv, "{:.3},20.{},9.{},0", line as f64 / 1e3, line % 10, line % 7).unwrap();
        writeln!(theaterq, "1000,20000000,{},0,100", line * 10).unwrap();
    }
    for (text, format) in [
        (mahimahi, Format::Mahimahi),
        (csv, Format::Csv),
        (theaterq, Format::TheaterQ),
    ] {
        let begin = std::time::Instant::now();
        assert!(read(&text, format).is_ok());
        let took = begin.elapsed();
        println!("{}: {took:?}", format.as_ref());
        // Without optimization, and on a busy machine.
        assert!(took.as_secs() < 20, "{}: {took:?}", format.as_ref());
    }
}

proptest! {
    #[test]
    fn no_text_makes_a_reader_panic(text in "[0-9,.\\n a-z%eE\\-\\[\\]{}\":+#]{0,200}|\\PC{0,80}") {
        for word in Format::VARIANTS {
            match read(&text, word.parse().unwrap()) {
                Ok(recording) => check(&recording),
                Err(error) => prop_assert!(error.line >= 1 && error.column >= 1),
            }
        }
    }

    #[test]
    fn no_damaged_table_makes_a_reader_panic(
        rows in proptest::collection::vec((0..1000u32, 0..1000u32, "[0-9.]{0,3}"), 1..20),
        cut in 0..400usize,
        flip in any::<(u8, u16)>(),
    ) {
        let mut text = String::from("time [ms],latency [us],loss [%]\n");
        for (time, latency, loss) in rows {
            text += &format!("{time},{latency},{loss}\n");
        }
        let mut bytes = text.into_bytes();
        bytes.truncate(cut);
        let place = usize::from(flip.1) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = flip.0;
        }
        let text = String::from_utf8_lossy(&bytes);
        for format in [Format::Csv, Format::TheaterQ, Format::Mahimahi] {
            if let Ok(recording) = read(&text, format) {
                check(&recording);
            }
        }
    }
}

/// What every recording keeps.
fn check(recording: &Recording) {
    let at = match &recording.track {
        Track::Opportunities(at) => at,
        Track::Samples { at, columns } => {
            assert!(columns.iter().all(|(_, values)| values.len() == at.len()));
            assert_eq!(at[0], 0);
            at
        }
    };
    assert!(at.is_sorted() && recording.length >= *at.last().unwrap() && recording.length > 0);
}
