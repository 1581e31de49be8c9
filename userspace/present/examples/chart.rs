//! Prints a chart with every feature, to look at: `cargo run -p perturb-present --example chart > chart.svg`.

use perturb_present::chart::{Axis, Chart, ChartError, Point, Series, Stroke};

fn main() -> Result<(), ChartError> {
    let response = |rate: f64, service: f64| 1e3 * service / (1.0 - rate * service);
    let mut chart = Chart::new(
        "M/M/1: response time over throughput",
        Axis::new("throughput", "op/s"),
        Axis::new("response time", "ms"),
    )
    .caption("bands of 10 %; dashed: the service time is 5 % longer");
    for (index, service) in [0.5e-3, 0.6e-3, 0.8e-3].into_iter().enumerate() {
        let rates = (1..=10).map(|step| 0.09 * f64::from(step) / service);
        let points = rates.clone().map(|x| {
            let y = response(x, service);
            Point {
                x,
                y,
                interval: Some((0.9 * y, 1.1 * y)),
            }
        });
        let slower = rates.map(|x| (x, response(x, 1.05 * service)));
        chart = chart
            .series(Series::new(format!("{} ms", 1e3 * service), points).color(index))
            .series(
                Series::new(format!("{} ms, slower", 1e3 * service), slower)
                    .stroke(Stroke::Dashed)
                    .without_markers()
                    .color(index),
            );
    }
    print!("{}", chart.to_svg()?);
    Ok(())
}
