//! LoGPC's network from a profile's mesh or torus.
//!
//! Model. A cycle is the time that a byte occupies a channel, so that a channel carries a byte per cycle as in the paper.
//! G is that of the narrowest server on the way in such cycles, 1 if no host's own server is slower than a channel. L is
//! the latency of the mean distance's channels and of the hosts' own servers. Messages are cut through, as in the paper;
//! the emulated mesh stores and forwards its frames.

use perturb_profile::{Knob, Layout, Profile};
use perturb_quantity::{Cycles, CyclesPerByte, Micros, MicrosPerByte};

use super::input::{Input, OverheadInput};
use super::network::Wiring;
use crate::route::{NO_TOPOLOGY, Route, RouteError, Source, Translation};

/// Keys of a profile that the translation reads.
const USED: [&str; 4] = ["overhead", "latency", "bandwidth", "topology"];

impl Input {
    /// Takes the network and the overheads from a profile, in the place of the input's; the header and the gap of the
    /// memory, and a mean distance of the program's own, stay the input's.
    ///
    /// # Errors
    /// When the profile's network is no mesh or torus, or its channels have no bandwidth.
    pub fn on_profile(&mut self, profile: &Profile) -> Result<Translation, RouteError> {
        let route = Route::of(profile, None)?;
        let wanted = "a mesh or torus";
        let (dimensions, link, wrap) = match &route.layout {
            Some(Layout::Mesh {
                dimensions,
                link,
                wrap,
            }) => (dimensions, link, *wrap),
            other => {
                let kind = other.as_ref().map_or(NO_TOPOLOGY, Layout::kind);
                return Err(RouteError::Topology { kind, wanted });
            }
        };
        let per_byte = link.bandwidth.map(|rate| MicrosPerByte::from(rate).0);
        let cycle = per_byte.ok_or(RouteError::Unlimited { what: "channels" })?;
        let wiring = if wrap { Wiring::Torus } else { Wiring::Mesh };
        let shape: Vec<u32> = dimensions.iter().copied().map(u32::from).collect();
        let network = &mut self.network;
        let hops = f64::from(shape.len() as u32)
            * network
                .mean_distance_per_dimension
                .unwrap_or_else(|| wiring.mean_distance_per_dimension(&shape));
        let own = route.first.iter().chain(&route.last);
        let latencies: f64 = own.map(|server| Micros::from(server.latency).0).sum();
        let latency = (latencies + hops * Micros::from(link.latency).0) / cycle;
        let gap_per_byte = route.knob(Knob::Bandwidth) / cycle;
        let ends = [route.overhead.send, route.overhead.receive];
        let [send, receive] = ends.map(|overhead| Micros::from(overhead).0 / cycle);
        let mut translation = Translation {
            unused: route.unused(&USED),
            replaced: [
                ("network.dimensions", network.dimensions.is_some()),
                ("network.topology", network.topology.is_some()),
                ("network.shape", network.shape.is_some()),
                ("network.latency", network.latency.is_some()),
                ("network.gap_per_byte", network.gap_per_byte.is_some()),
                ("overheads", self.overheads.is_some()),
            ]
            .into_iter()
            .filter_map(|(key, there)| there.then_some(key))
            .collect(),
            ..Translation::default()
        };
        let from_profile = |translation: &mut Translation, key, value: String| {
            translation.take(key, value, Source::Profile);
        };
        let cycles = |value: f64| format!("{value:.3}cycles");
        let lengths: Vec<String> = shape.iter().map(u32::to_string).collect();
        from_profile(&mut translation, "cycle", format!("{:.3}ns", cycle * 1e3));
        from_profile(&mut translation, "network.shape", lengths.join(" x "));
        let word = if wrap { "torus" } else { "mesh" };
        from_profile(&mut translation, "network.topology", word.to_owned());
        from_profile(&mut translation, "network.latency", cycles(latency));
        let gap = format!("{gap_per_byte:.3}cycles/B");
        from_profile(&mut translation, "network.gap_per_byte", gap);
        from_profile(&mut translation, "overheads.send", cycles(send));
        from_profile(&mut translation, "overheads.receive", cycles(receive));
        if let Some(distance) = network.mean_distance_per_dimension {
            let key = "network.mean_distance_per_dimension";
            translation.take(key, distance.to_string(), Source::Input);
        }
        network.dimensions = None;
        network.topology = Some(wiring);
        network.shape = Some(shape);
        network.latency = Some(Cycles(latency));
        network.gap_per_byte = Some(CyclesPerByte(gap_per_byte));
        self.overheads = Some(OverheadInput {
            send: Cycles(send),
            receive: Cycles(receive),
        });
        Ok(translation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logpc::predict;

    const ALEWIFE: &str = "
version: 1
overhead: { send: 5us, receive: 10us }
servers: { nic: { bandwidth: 40Mbit/s, latency: 3us, loss: 1% } }
topology: { kind: mesh, dimensions: [4, 8], egress: [nic], link: { bandwidth: 80Mbit/s, latency: 2us } }
";

    fn on(profile: &str, input: &str) -> Result<(Input, Translation), RouteError> {
        let mut input: Input = serde_saphyr::from_str(input).unwrap();
        let translation = input.on_profile(&perturb_profile::parse(profile).unwrap())?;
        Ok((input, translation))
    }

    #[test]
    fn cycles_are_bytes_on_a_channel() {
        let (input, translation) = on(ALEWIFE, "pattern: {kind: one-way, message: 44B}").unwrap();
        let parameters = input.parameters().unwrap();
        // A byte takes 0.1 us.
        let message = parameters.message;
        assert_eq!(
            (message.send, message.receive, message.gap_per_byte),
            (50.0, 100.0, 2.0)
        );
        let hops = 2.0 * Wiring::Mesh.mean_distance_per_dimension(&[4, 8]);
        assert!((message.latency - (30.0 + 20.0 * hops)).abs() < 1e-9);
        assert_eq!(parameters.shape, Some(vec![4, 8]));
        assert_eq!(translation.unused, ["loss"]);
        assert!(translation.replaced.is_empty());
        // The same as by hand.
        let by_hand = format!(
            "{{network: {{shape: [4, 8], latency: {}cycles, gap_per_byte: 2cycles/B}}, \
             overheads: {{send: 50cycles, receive: 100cycles}}, pattern: {{kind: one-way, message: 44B}}}}",
            message.latency
        );
        let by_hand: Input = serde_saphyr::from_str(&by_hand).unwrap();
        assert_eq!(predict(&parameters), predict(&by_hand.parameters().unwrap()));
    }

    #[test]
    fn the_program_s_own_distance_stays() {
        let input = "{network: {mean_distance_per_dimension: 0.5, latency: 7cycles, header: 8B}, \
                     pattern: {kind: one-way, message: 44B}}";
        let (input, translation) = on(&ALEWIFE.replace("mesh", "torus"), input).unwrap();
        assert_eq!(translation.replaced, ["network.latency"]);
        let parameters = input.parameters().unwrap();
        assert_eq!(parameters.network.distance, 0.5);
        assert_eq!(parameters.network.wiring, Wiring::Torus);
        assert_eq!(
            (parameters.message.latency, parameters.message.header),
            (50.0, 8.0)
        );
    }

    #[test]
    fn other_networks_are_refused() {
        let refused = |profile: &str| {
            let error = on(profile, "pattern: {kind: one-way, message: 44B}").unwrap_err();
            error.to_string()
        };
        assert_eq!(
            refused("{ version: 1, topology: { kind: star, link: { bandwidth: 1Mbit/s } } }"),
            "the profile's network is a star, but this model's is a mesh or torus"
        );
        assert!(refused("{ version: 1, latency: 1ms }").contains("without a topology"));
        let unlimited = ALEWIFE.replace("bandwidth: 80Mbit/s, latency: 2us", "latency: 2us");
        assert_eq!(
            refused(&unlimited),
            "the profile's channels have no `bandwidth`, which this model needs"
        );
    }

    #[test]
    fn without_a_profile_the_input_needs_them() {
        let said = |text: &str| {
            let input: Input = serde_saphyr::from_str(text).unwrap();
            input.parameters().unwrap_err().to_string()
        };
        let pattern = "pattern: {kind: one-way, message: 44B}";
        assert!(
            said(&format!(
                "{{network: {{shape: [4]}}, overheads: {{send: 1cycles, receive: 1cycles}}, {pattern}}}"
            ))
            .starts_with("network.latency: missing")
        );
        assert!(
            said(&format!(
                "{{network: {{shape: [4], latency: 1cycles}}, {pattern}}}"
            ))
            .starts_with("overheads: missing")
        );
    }
}
