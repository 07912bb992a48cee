//! A port in Rust that offers its stages. Off unless asked for:
//!   LOCKSTEP_RECORD=rust_port cargo run --offline --example record && lockstep runs show latest:rust_port
use lockstep::{At, Run};

fn main() {
    let mut run = Run::from_environment("rust_port");
    run.describe(r#"{"model": "example", "producer": {"name": "record.rs", "language": "rust"}}"#);
    let mut x: Vec<f32> = (0..6).map(|i| i as f32).collect();
    run.checkpoint_at("input", &mut x, &[2, 3], &lockstep::here!());
    for step in 0..3 {
        for value in &mut x {
            *value = 0.5 * *value + 1.0; // [2, 3]
        }
        run.checkpoint_at("latents", &mut x, &[2, 3], &At { step: Some(step), tags: &[("pass", "cond")], ..lockstep::here!() });
    }
    let mut sum = [x.iter().sum::<f32>()];
    run.checkpoint("sum", &mut sum, &[]);
    println!("{:.4}", sum[0]);
    run.close();
}
