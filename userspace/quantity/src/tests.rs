use proptest::prelude::*;

use super::*;

fn fault<Q: Quantity>(text: &str) -> Fault {
    match text.parse::<Q>() {
        Ok(_) => panic!("{text} is read"),
        Err(error) => error.fault,
    }
}

#[test]
fn reads_decimals_exactly() {
    assert_eq!("5.8us".parse(), Ok(Duration::from_nanos(5_800)));
    assert_eq!("80 µs".parse(), Ok(Duration::from_nanos(80_000)));
    assert_eq!("10min".parse(), Ok(Duration::from_nanos(600_000_000_000)));
    assert_eq!("1.5h".parse(), Ok(Duration::from_nanos(5_400_000_000_000)));
    assert_eq!("38MB/s".parse(), Ok(Rate::from_bits_per_second(304_000_000)));
    assert_eq!("3B/us".parse(), Ok(Rate::from_bits_per_second(24_000_000)));
    assert_eq!("64KiB".parse(), Ok(Size::from_bytes(65_536)));
    assert_eq!("0.1%".parse(), Ok(Probability::from_billionths(1_000_000)));
    assert_eq!("00020.500ms".parse(), Ok(Duration::from_nanos(20_500_000)));
}

#[test]
fn reads_reals_in_one_unit() {
    assert_eq!("1.38ms".parse(), Ok(Micros(1380.0)));
    assert_eq!(" 8 KiB".parse(), Ok(ByteSize(8192.0)));
    assert_eq!("10Mbit/s".parse(), Ok(BytesPerSecond(1.25e6)));
    assert_eq!("2.5e3cycles".parse(), Ok(Cycles(2500.0)));
    assert_eq!(".5cycles/B".parse(), Ok(CyclesPerByte(0.5)));
    assert_eq!("3B/us".parse(), Ok(BytesPerSecond(3e6)));
    assert_eq!("97.07%".parse(), Ok(Share(0.9707)));
    assert_eq!("7.2us/KiB".parse(), Ok(MicrosPerByte(0.00703125)));
    assert_eq!("26.3ns/B".parse(), Ok(MicrosPerByte(0.0263)));
    // Of a time it is not known how many bytes it is for.
    assert!("26.3us".parse::<MicrosPerByte>().is_err());
    assert_eq!("2kop/s".parse(), Ok(OperationsPerSecond(2000.0)));
}

/// A number is written alike for both readings.
#[test]
fn numbers_have_one_form() {
    for (text, nanos) in [
        ("1.ms", 1_000_000),
        (".5ms", 500_000),
        ("+2us", 2_000),
        ("1.5e-3s", 1_500_000),
        ("25E+2ns", 2_500),
        ("1000e-3ns", 1),
        ("0e99999999999s", 0),
    ] {
        assert_eq!(text.parse(), Ok(Duration::from_nanos(nanos)), "{text}");
        assert_eq!(text.parse(), Ok(Micros(nanos as f64 / 1e3)), "{text}");
    }
    for text in [
        "20", "0", "-1ms", "-.5ms", "fast", ".ms", "1.2.3ms", "", "1e3", "infms", "5 MS",
    ] {
        assert_eq!(fault::<Duration>(text), fault::<Micros>(text), "{text}");
    }
}

#[test]
fn every_dimension_reads_its_example() {
    fn example<Q: Quantity + std::fmt::Debug>() {
        assert!(Q::DIMENSION.example.parse::<Q>().is_ok(), "{}", Q::DIMENSION);
        // Each unit that a message offers.
        for unit in Q::DIMENSION.offered.split([',', ' ']) {
            let unit = unit.trim_matches(['(', ')']);
            if !unit.is_empty() && !["powers", "of", "1000", "1024"].contains(&unit) {
                assert!(format!("8 {unit}").parse::<Q>().is_ok(), "{unit}");
            }
        }
    }
    example::<Duration>();
    example::<Rate>();
    example::<Size>();
    example::<Probability>();
    example::<Micros>();
    example::<ByteSize>();
    example::<BytesPerSecond>();
    example::<OperationsPerSecond>();
    example::<Share>();
    example::<MicrosPerByte>();
    example::<Cycles>();
    example::<CyclesPerByte>();
}

#[test]
fn refuses_what_has_no_single_meaning() {
    assert_eq!(fault::<Duration>("20"), Fault::NoUnit);
    assert_eq!(fault::<Duration>("0"), Fault::NoUnit);
    assert_eq!(fault::<Duration>("-1ms"), Fault::Negative);
    assert_eq!(fault::<Duration>("fast"), Fault::NotANumber);
    assert_eq!(fault::<Duration>("1.2.3ms"), Fault::NotANumber);
    assert_eq!(fault::<Duration>(""), Fault::NotANumber);
    for fine in ["0.1ns", "1e-1ns", "1e-99999999999s", "1e-40s"] {
        assert_eq!(fault::<Duration>(fine), Fault::TooFine { step: "1ns" }, "{fine}");
    }
    for large in [
        "99999999999999999999s",
        "18446744073709551615s",
        "1e30s",
        "1e99999999999s",
    ] {
        assert_eq!(fault::<Duration>(large), Fault::TooLarge, "{large}");
    }
    assert_eq!(fault::<Micros>("1e400s"), Fault::TooLarge);
}

#[test]
fn errors_say_what_to_write() {
    let error = |text: &str| text.parse::<Micros>().unwrap_err().to_string();
    assert_eq!(
        error("20"),
        "has no unit; write a duration in ns, us, ms, s, min, h, such as 20ms"
    );
    assert_eq!(
        error("20 msec"),
        "has the unit `msec`, which is not one of the units of a duration (did you mean `ms`?); \
         write a duration in ns, us, ms, s, min, h, such as 20ms"
    );
}

#[test]
fn yaml_strings_and_bare_numbers() {
    assert_eq!(serde_saphyr::from_str("1.38ms").ok(), Some(Micros(1380.0)));
    assert_eq!(
        serde_saphyr::from_str("1.38ms").ok(),
        Some(Duration::from_nanos(1_380_000))
    );
    for (text, expected) in [
        ("20", "`20` has no unit"),
        ("2.5", "`2.5` has no unit"),
        ("~", "a value is missing"),
    ] {
        let error = serde_saphyr::from_str::<Micros>(text).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("20ms"), "{error}");
    }
}

#[test]
fn a_gap_per_byte_is_a_rate() {
    let rate: Rate = "38MB/s".parse().unwrap();
    assert_eq!(MicrosPerByte::from(rate).rate(), Some(rate));
    assert_eq!(MicrosPerByte(0.0).rate(), None);
    assert_eq!(
        Micros::from(Duration::from_nanos(1_500)).duration(),
        Duration::from_nanos(1_500)
    );
}

#[test]
fn guesses_the_unit_that_was_meant() {
    fn guess<Q: Quantity>(text: &str) -> Option<&'static str> {
        match fault::<Q>(text) {
            Fault::UnknownUnit { suggestion, .. } => suggestion,
            _ => None,
        }
    }
    assert_eq!(guess::<Rate>("10mbit/s"), Some("Mbit/s"));
    assert_eq!(guess::<Rate>("10Mbps"), Some("Mbit/s"));
    assert_eq!(guess::<Rate>("10MBps"), Some("MB/s"));
    assert_eq!(guess::<Rate>("10mbit"), Some("Mbit/s"));
    assert_eq!(guess::<Rate>("10GB"), Some("GB/s"));
    assert_eq!(guess::<Duration>("3 msec"), Some("ms"));
    assert_eq!(guess::<Duration>("3MS"), Some("ms"));
    assert_eq!(guess::<Size>("64kib"), Some("KiB"));
}

#[test]
fn prints_in_the_unit_a_person_would_choose() {
    for text in ["20ms", "5.8us", "1.000000001s", "80us", "0s"] {
        assert_eq!(text.parse::<Duration>().unwrap().to_string(), text);
    }
    assert_eq!("38MB/s".parse::<Rate>().unwrap().to_string(), "38MB/s");
    assert_eq!("10000kbit/s".parse::<Rate>().unwrap().to_string(), "10Mbit/s");
    assert_eq!("65536B".parse::<Size>().unwrap().to_string(), "64KiB");
    assert_eq!("1500B".parse::<Size>().unwrap().to_string(), "1500B");
}

#[test]
fn time_of_rounds_up_and_never_overflows() {
    assert_eq!(
        Rate::from_bits_per_second(10_000_000).time_of(1514),
        Duration::from_nanos(1_211_200)
    );
    assert_eq!(
        Rate::from_bits_per_second(3).time_of(1),
        Duration::from_nanos(2_666_666_667)
    );
    assert_eq!(
        Rate::from_bits_per_second(1).time_of(u64::MAX),
        Duration::from_nanos(u64::MAX)
    );
    assert_eq!(
        Rate::from_bits_per_second(0).time_of(1),
        Duration::from_nanos(u64::MAX)
    );
}

proptest! {
    #[test]
    fn printing_is_exact(steps: u64, in_bytes: bool) {
        prop_assert_eq!(Duration(steps).to_string().parse(), Ok(Duration(steps)));
        prop_assert_eq!(Size(steps).to_string().parse(), Ok(Size(steps)));
        prop_assert_eq!(Probability(steps).to_string().parse(), Ok(Probability(steps)));
        let bits_per_second = if in_bytes { steps & !7 } else { steps };
        let rate = Rate { bits_per_second, in_bytes };
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,12}", number in "[0-9.eE+-]{0,40}", unit in "[a-zA-Zµ%/]{0,6}") {
        for candidate in [text, format!("{number}{unit}")] {
            let _ = candidate.parse::<Duration>();
            let _ = candidate.parse::<Rate>();
            let _ = candidate.parse::<Size>();
            let _ = candidate.parse::<Probability>();
            let _ = candidate.parse::<MicrosPerByte>();
        }
    }
}
