use perturb_profile::Size;

use super::*;

#[test]
fn pieces_are_of_one_size_or_make_up_one_block() {
    assert_eq!(Load::Each(7).pieces(3), [7, 7, 7]);
    assert_eq!(Load::Together(8).pieces(3), [3, 3, 2]);
    assert_eq!(Load::Together(1 << 20).pieces(128), vec![8192; 128]);
}

#[test]
fn time_outs_are_whole_ticks() {
    let ms = Duration::from_millis;
    for (asked, tick, whole_ms) in [(1, 4, 4), (5, 4, 8), (200, 4, 200), (1, 1, 1), (5, 10, 10)] {
        assert_eq!(
            whole(ms(asked), ms(tick)),
            ms(whole_ms),
            "{asked} ms, ticks of {tick}"
        );
    }
}

#[test]
fn ports_and_kinds_change_what_they_name_only() {
    let text = "version: 1\ntopology: { kind: star, link: { bandwidth: 8Mbit/s, buffer: 9kB } }\n\
                tcp: { congestion_control: reno, sack: false }\n";
    let profile = perturb_profile::parse(text).unwrap();
    let (buffer, mark_above) = (Some(Size::from_bytes(64 << 10)), Some(Duration::from_millis(1)));
    let port = Port { buffer, mark_above };
    let changed = with_port(profile.clone(), port).unwrap().to_string();
    assert!(
        changed.contains("buffer: 64KiB") && changed.contains("threshold: 1ms"),
        "{changed}"
    );
    assert_eq!(
        with_port(profile.clone(), Port::default()).as_ref(),
        Some(&profile)
    );
    let bus = "version: 1\ntopology: { kind: bus, link: { bandwidth: 8Mbit/s } }\n";
    assert_eq!(with_port(perturb_profile::parse(bus).unwrap(), port), None);
    let mut unsaved = profile.clone();
    unsaved.tcp.no_metrics_save = Some(true);
    assert_eq!(Kind::default().of(&profile), unsaved);
    let kind = Kind {
        control: Some("cubic".into()),
        rto_min: Some(Duration::from_millis(5)),
        rack_tlp: Some(false),
        ecn: Some(false),
    };
    let tcp = kind.of(&profile).tcp;
    assert_eq!(
        (tcp.recovery, tcp.early_retrans, tcp.sack, tcp.ecn),
        (Some(0), Some(0), Some(true), Some(false))
    );
    assert_eq!(
        (
            tcp.congestion_control,
            tcp.rto_min.map(perturb_profile::Duration::nanos)
        ),
        (None, Some(5_000_000))
    );
}

/// A buffer that holds all bursts, and one that does not.
#[test]
fn time_outs_lower_the_prediction() {
    let goodput = |buffer: &str| {
        let text = format!(
            "version: 1\nservers: {{ nic: {{ bandwidth: 100Mbit/s }} }}\ntopology: {{ kind: star, egress: [nic], \
             link: {{ bandwidth: 100Mbit/s, buffer: {buffer} }} }}\ntcp: {{ rto_min: 200ms }}\n"
        );
        let profile = perturb_profile::parse(&text).unwrap();
        predicted(
            &profile,
            Duration::from_millis(4),
            8,
            16 << 10,
            Duration::from_micros(100),
        )
        .unwrap()
        .unwrap()
    };
    let (with, without) = goodput("64KiB");
    assert!(with > without + 199.0, "{with} {without}");
    // 8 pieces of 16 KiB need 10.5 ms.
    assert!((10.5..12.0).contains(&without), "{without}");
    let (with, without) = goodput("10MiB");
    assert!((with - without).abs() < 1e-9, "{with} {without}");
}
