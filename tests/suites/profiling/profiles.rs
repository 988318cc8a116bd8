//! Profiles of launches, on the CPU and, if there is one, on a GPU.

use serde_json::Value;
use tilewright::launch::shapes_of;
use tilewright::prelude::*;
use tilewright::profile::{self, Source};
use tilewright_tests::devices;

const LINE: u32 = line!() + 3;
/// out[i] = x[i] * factor
#[kernel]
fn scale<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, factor: f32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + i, load(x + i) * factor);
}

#[kernel]
fn negate<const BLOCK: usize>(out: PtrMut<f32>) {
    let i = arange(0, BLOCK);
    store(out + i, -load(out + i));
}

/// There is one profile at a time in a process.
pub fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn work(device: &Device) -> Result<Vec<f32>, Error> {
    let (x, mut out) = (device.full(256, 2.0f32)?, device.zeros::<f32>(256)?);
    for _ in 0..3 {
        let _range = profile::range("scaling");
        scale::<64>(&x, &mut out, 3.0).grid(4).launch(device)?;
    }
    negate::<256>(&mut out).grid(1).launch(device)?;
    negate::<256>(&mut out).grid(0).launch(device)?;
    out.to_vec()
}

#[test]
fn profiles_have_every_launch_with_its_place() {
    let _turn = turn();
    devices::on_every_device(|device| {
        let (out, profile) = tilewright::profile(device, || work(device)).expect("it runs");
        assert_eq!(out, vec![-6.0; 256]);
        let names: Vec<&str> = profile.kernels.iter().map(|run| run.name.as_str()).collect();
        // Of other libraries' kernels there may be some, such as those of the driver that fill memory.
        let ours = names.iter().filter(|name| ["scale", "negate"].contains(name)).collect::<Vec<_>>();
        assert_eq!(ours, [&"scale", &"scale", &"scale", &"negate"], "{profile}");
        let first = profile.kernels.iter().find(|run| run.name == "scale").expect("it ran");
        assert_eq!(first.place.map(|at| (at.file, at.line)), Some((file!(), LINE)));
        assert_eq!((first.grid, profile.source == Source::Clock), ([4, 1, 1], !device.is_cuda()));
        assert!(profile.kernels.is_sorted_by_key(|run| run.start_ns));
        assert!(profile.kernels.iter().all(|run| run.start_ns <= run.end_ns && run.end_ns <= profile.wall_ns * 2));
        let ranges: Vec<&str> = profile.ranges.iter().map(|range| range.name.as_str()).collect();
        assert_eq!(ranges, ["scaling"; 3]);

        let trace: Value = serde_json::from_str(&profile.trace()).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("a list");
        let of_scale = events.iter().filter(|event| event["name"] == "scale");
        let places: Vec<_> = of_scale.map(|event| (&event["args"]["file"], &event["args"]["line"])).collect();
        assert_eq!(places, [(&Value::from(file!()), &Value::from(LINE)); 3]);
        assert!(profile.csv().lines().any(|line| line.starts_with(&format!("scale,{},{LINE},", file!()))));
        assert!(profile.to_string().contains(&format!("scale  {}:{LINE}", file!())), "{profile}");
    });
}

#[test]
fn what_runs_outside_is_not_in_a_profile() {
    let _turn = turn();
    let device = Device::cpu();
    work(&device).expect("it runs");
    let ((), profile) = tilewright::profile(&device, || Ok(())).expect("it runs");
    let other = Device::cpu();
    assert_eq!((profile.kernels, profile.ranges), (vec![], vec![]));
    let ((), profile) = tilewright::profile(&device, || work(&other).map(drop)).expect("it runs");
    assert_eq!(profile.kernels.len(), 4, "all devices of the CPU are one");
}

/// What is only noted has not run: a profile has it not. Launches of other threads run meanwhile, and are in the profile.
#[test]
fn noted_launches_are_in_no_profile() {
    let _turn = turn();
    let device = Device::cpu();
    let ((), profile) = tilewright::profile(&device, || {
        let noted = shapes_of(|| {
            let of_another_thread =
                std::thread::scope(|scope| scope.spawn(|| work(&device)).join()).expect("no panic")?;
            assert_eq!(of_another_thread, vec![-6.0; 256], "they are made");
            assert_eq!(work(&device)?, vec![0.0; 256], "they are not made");
            Ok(())
        })?;
        let names: Vec<&str> = noted.iter().map(|shape| shape.kernel()).collect();
        assert_eq!(names, ["scale", "scale", "scale", "negate"]);
        Ok(())
    })
    .expect("it runs");
    assert_eq!(profile.kernels.len(), 4, "{profile}");
}

/// A thread that has noted its launches ends that for itself alone.
#[test]
fn threads_note_launches_for_themselves() {
    let _turn = turn();
    let device = Device::cpu();
    let note = || shapes_of(|| work(&device).map(drop)).map(|shapes| shapes.len());
    let outer = shapes_of(|| {
        std::thread::scope(|scope| assert_eq!(scope.spawn(note).join().expect("no panic"), Ok(4)));
        assert_eq!(work(&device)?, vec![0.0; 256], "this thread still notes");
        Ok(())
    });
    assert_eq!(outer.map(|shapes| shapes.len()), Ok(4));
    assert_eq!(work(&device), Ok(vec![-6.0; 256]), "and now it launches");
}

#[test]
fn errors_are_those_of_the_work_and_end_the_profile() {
    let _turn = turn();
    let device = Device::cpu();
    let inner = tilewright::profile(&device, || tilewright::profile(&device, || Ok(())));
    assert!(inner.unwrap_err().to_string().contains("one at a time"));
    let mut out = device.zeros::<f32>(4).expect("it fits");
    let failed = tilewright::profile(&device, || negate::<256>(&mut out).grid(1).launch(&device));
    assert!(matches!(failed, Err(Error::OutOfBounds { .. })), "{failed:?}");
    assert!(tilewright::profile(&device, || Ok(())).is_ok(), "the profile before has ended");
}
