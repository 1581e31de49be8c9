//! PlogPT's parameters from a profile.

use super::*;
use crate::route::{RouteError, Source};

const STAR: &str = "
version: 1
overhead: { send: 10us, receive: 30us }
servers: { nic: { bandwidth: 80Mbit/s, gap: 5us, latency: 1us } }
topology: { kind: star, egress: [nic], link: { bandwidth: 40Mbit/s, latency: 100us, buffer: 20KiB, loss: 1% } }
";

fn on(profile: &str, program: &str) -> Result<(PlogptInput, crate::route::Translation), RouteError> {
    let program: OnProfile = serde_saphyr::from_str(program).unwrap();
    program.input(&perturb_profile::parse(profile).unwrap())
}

#[test]
fn parameters_by_hand() {
    let (input, translation) = on(
        STAR,
        "{parameters: {nodes: 4, latency: 1us, jitter: 7us}, program: {collective: alltoall-b, message: 2896B}}",
    )
    .unwrap();
    let parameters = &input.parameters;
    // Two frames and an acknowledgment, 3094 bytes, at 5 MB/s; the processor's six packets of 20 us are shorter.
    assert!((parameters.gap[0].gap.0 - 3094.0 / 5.0).abs() < 1e-9);
    // Latencies, both overheads, and a frame at the two links behind the NIC.
    assert!((parameters.latency.0 - (201.0 + 40.0 + 2.0 * 1514.0 / 5.0)).abs() < 1e-9);
    // Above a host's link nothing limits; the port's buffer is 20 KiB of 5 MB/s.
    let rates: Vec<f64> = parameters
        .links
        .iter()
        .map(|link| link.bandwidth.0 / 1e6)
        .collect();
    assert_eq!(rates, [5.0, 10.0]);
    assert!((parameters.links[0].buffer_delay.0 - 20_480.0 / 5.0).abs() < 1e-9);
    assert_eq!((parameters.jitter.0, parameters.rto.0), (7.0, 200_000.0));
    let from = |key: &str| {
        translation
            .taken
            .iter()
            .find(|taken| taken.key == key)
            .unwrap()
            .from
    };
    assert_eq!(
        ["nodes", "jitter", "latency", "gap", "rto"].map(from),
        [
            Source::Input,
            Source::Input,
            Source::Profile,
            Source::Profile,
            Source::Default
        ]
    );
    assert_eq!(translation.replaced, ["parameters.latency"]);
    assert_eq!(translation.unused, ["loss"]);
    assert!(predict(&input).unwrap().total_us > 3.0 * parameters.gap[0].gap.0);
}

#[test]
fn a_processor_that_is_slower_than_its_link() {
    let slow = STAR.replace("send: 10us, receive: 30us", "send: 1ms, receive: 1ms");
    let gap = |profile: &str| {
        let (input, _) = on(profile, "program: {collective: alltoall-b, message: 2896B}").unwrap();
        input.parameters.gap[0].gap.0
    };
    // Three packets sent and three received; acknowledgments need not cost anything.
    assert_eq!(gap(&slow), 6000.0);
    assert_eq!(
        gap(&slow.replace("receive: 1ms", "receive: 1ms, acknowledgments: free")),
        4000.0
    );
}

#[test]
fn networks_that_are_no_trees() {
    let program = "program: {collective: gather, message: 1kB}";
    let refused = |profile: &str| on(profile, program).unwrap_err().to_string();
    assert_eq!(
        refused("{ version: 1, topology: { kind: bus, link: { bandwidth: 10Mbit/s } } }"),
        "the profile's network is a bus, but this model's is a tree of switches or a star"
    );
    assert!(refused("{ version: 1, latency: 5ms }").contains("without a topology"));
    let tree = "{ version: 1, topology: { kind: tree, levels: [{ bandwidth: 10Mbit/s }] } }";
    let four = "{parameters: {nodes: 4}, program: {collective: gather, message: 1kB}}";
    assert!(matches!(
        on(tree, four),
        Err(RouteError::Hosts {
            room: 2,
            hosts: 4,
            ..
        })
    ));
    // As many nodes as it has room for.
    assert_eq!(on(tree, program).unwrap().0.parameters.nodes, 2);
}
