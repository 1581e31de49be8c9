//! LogGP's baseline from a profile.

use perturb_profile::{Knob, Profile};
use perturb_quantity::{BytesPerSecond, Micros};

use super::LoggpInput;
use crate::route::{Route, RouteError, Source, Translation};

/// Keys of a profile that the translation reads.
const USED: [&str; 5] = ["overhead", "latency", "gap", "bandwidth", "topology"];

impl LoggpInput {
    /// Takes the network on which the run time was measured from a profile: o (the mean of o_s and o_r), g, L and 1/G of
    /// the way between its farthest hosts, in the place of the baseline's. A bandwidth without limit is not said.
    ///
    /// # Errors
    /// When the profile emulates nothing.
    pub fn on_profile(&mut self, profile: &Profile) -> Result<Translation, RouteError> {
        let route = Route::of(profile, None)?;
        let mut translation = Translation {
            unused: route.unused(&USED),
            ..Translation::default()
        };
        let baseline = &mut self.baseline;
        for (knob, key, place) in [
            (Knob::Overhead, "baseline.overhead", &mut baseline.overhead),
            (Knob::Gap, "baseline.gap", &mut baseline.gap),
            (Knob::Latency, "baseline.latency", &mut baseline.latency),
        ] {
            let value = route.knob(knob);
            if place.replace(Micros(value)).is_some() {
                translation.replaced.push(key);
            }
            translation.take(key, knob.written(value), Source::Profile);
        }
        let (key, per_byte) = ("baseline.bandwidth", route.knob(Knob::Bandwidth));
        if per_byte > 0.0 {
            if baseline
                .bandwidth
                .replace(BytesPerSecond(1e6 / per_byte))
                .is_some()
            {
                translation.replaced.push(key);
            }
            translation.take(key, Knob::Bandwidth.written(per_byte), Source::Profile);
        } else if let Some(bandwidth) = baseline.bandwidth {
            translation.take(key, Knob::Bandwidth.written(1e6 / bandwidth.0), Source::Input);
        }
        if let Some(fragment) = baseline.fragment_overhead {
            let key = "baseline.fragment_overhead";
            translation.take(key, format!("{}us", fragment.0), Source::Input);
        }
        Ok(translation)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LoggpInput, predict};
    use crate::route::Source;

    const PROFILE: &str = "
version: 1
overhead: { send: 2us, receive: 4us }
servers: { nic: { gap: 5us, bandwidth: 80Mbit/s, latency: 1us } }
topology: { kind: star, egress: [nic], link: { bandwidth: 40Mbit/s, latency: 10us, loss: 1%, jitter: 1us } }
";

    fn input(text: &str) -> LoggpInput {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn the_baseline_is_the_profile_s() {
        let profile = perturb_profile::parse(PROFILE).unwrap();
        let mut found = input(
            "{baseline: {run_time: 1s, overhead: 1us}, messages: {maximum: 1000, reads: 50%, bulk_bytes: 1MB}, \
             vary: {overhead: [13us]}}",
        );
        let translation = found.on_profile(&profile).unwrap();
        let micros = |value: Option<perturb_quantity::Micros>| value.unwrap().0;
        let baseline = &found.baseline;
        assert_eq!(
            (
                micros(baseline.overhead),
                micros(baseline.gap),
                micros(baseline.latency)
            ),
            (3.0, 5.0, 21.0)
        );
        assert!((baseline.bandwidth.unwrap().0 - 5e6).abs() < 1e-3);
        assert_eq!(translation.replaced, ["baseline.overhead"]);
        assert_eq!(translation.unused, ["jitter", "loss"]);
        assert!(
            translation
                .taken
                .iter()
                .all(|taken| taken.from == Source::Profile)
        );
        // Ten more microseconds at both ends of each message.
        assert_eq!(predict(&found).unwrap().run_time_s, [1.0 + 2.0 * 1000.0 * 10e-6]);
    }

    #[test]
    fn a_bandwidth_without_limit_is_the_input_s() {
        let profile = perturb_profile::parse("{ version: 1, latency: 5ms }").unwrap();
        let mut found = input(
            "{baseline: {run_time: 1s, bandwidth: 10MB/s}, messages: {maximum: 1}, vary: {latency: [1us]}}",
        );
        let translation = found.on_profile(&profile).unwrap();
        assert_eq!(found.baseline.bandwidth.unwrap().0, 1e7);
        let from: Vec<Source> = translation.taken.iter().map(|taken| taken.from).collect();
        assert_eq!(
            from,
            [Source::Profile, Source::Profile, Source::Profile, Source::Input]
        );
    }
}
