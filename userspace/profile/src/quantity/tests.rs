use super::*;
use proptest::prelude::*;

#[test]
fn reads_decimals_exactly() {
    assert_eq!("5.8us".parse(), Ok(Duration::from_nanos(5_800)));
    assert_eq!("80 µs".parse(), Ok(Duration::from_nanos(80_000)));
    assert_eq!("38MB/s".parse(), Ok(Rate::from_bits_per_second(304_000_000)));
    assert_eq!("64KiB".parse(), Ok(Size::from_bytes(65_536)));
    assert_eq!("0.1%".parse(), Ok(Probability::from_billionths(1_000_000)));
    assert_eq!("00020.500ms".parse(), Ok(Duration::from_nanos(20_500_000)));
}

#[test]
fn refuses_what_has_no_single_meaning() {
    let duration = |text: &str| text.parse::<Duration>().unwrap_err();
    assert_eq!(duration("20"), QuantityError::NoUnit);
    assert_eq!(duration("0"), QuantityError::NoUnit);
    assert_eq!(duration("-1ms"), QuantityError::Negative);
    assert_eq!(duration("fast"), QuantityError::NotANumber);
    assert_eq!(duration("1.ms"), QuantityError::NotANumber);
    assert_eq!(duration(".5ms"), QuantityError::NotANumber);
    assert_eq!(duration("1.2.3ms"), QuantityError::NotANumber);
    assert_eq!(duration(""), QuantityError::NotANumber);
    assert_eq!(duration("0.1ns"), QuantityError::TooFine { step: "1ns" });
    assert_eq!(duration("99999999999999999999s"), QuantityError::TooLarge);
    assert_eq!(duration("18446744073709551615s"), QuantityError::TooLarge);
}

#[test]
fn guesses_the_unit_that_was_meant() {
    let guess = |error| match error {
        QuantityError::UnknownUnit { suggestion, .. } => suggestion,
        _ => None,
    };
    let rate = |text: &str| guess(text.parse::<Rate>().unwrap_err());
    assert_eq!(rate("10mbit/s"), Some("Mbit/s"));
    assert_eq!(rate("10Mbps"), Some("Mbit/s"));
    assert_eq!(rate("10MBps"), Some("MB/s"));
    assert_eq!(rate("10mbit"), Some("Mbit/s"));
    assert_eq!(rate("10GB"), Some("GB/s"));
    assert_eq!(guess("3 msec".parse::<Duration>().unwrap_err()), Some("ms"));
    assert_eq!(guess("3MS".parse::<Duration>().unwrap_err()), Some("ms"));
    assert_eq!(guess("64kib".parse::<Size>().unwrap_err()), Some("KiB"));
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
    fn no_text_panics(text in "\\PC{0,12}", number in "[0-9.]{0,40}", unit in "[a-zA-Zµ%/]{0,6}") {
        for candidate in [text, format!("{number}{unit}")] {
            let _ = candidate.parse::<Duration>();
            let _ = candidate.parse::<Rate>();
            let _ = candidate.parse::<Size>();
            let _ = candidate.parse::<Probability>();
        }
    }
}
