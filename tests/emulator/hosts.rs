//! The emulator's handlers are compiled for several instruction sets of the host, of which a run takes the best that there is: what
//! tests say of it is true of the others.

use std::process::Command;

/// Tests of single instructions: enough of them to meet every handler.
const AGAIN: [&str; 5] = ["handlers::", "matrix::", "matrix_modifiers::", "modes::", "numbers::"];

/// Runs those tests of this executable again, with an instruction set of the host in the place of the best.
fn again(host: &str) {
    let out = Command::new(std::env::current_exe().unwrap()).args(AGAIN).env("BAREWAVE_HOST", host).output().unwrap();
    let text = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    let ran = AGAIN.iter().all(|module| text[0].contains(&format!("test {module}")));
    assert!(out.status.success() && ran, "{host}: {}\n{}", text[0], text[1]);
}

#[test]
fn portable_code_does_the_same() {
    again("portable");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn avx2_does_the_same() {
    if std::is_x86_feature_detected!("avx2") {
        again("avx2");
    }
}

#[test]
fn every_copy_of_a_handler_gives_the_same() {
    let compared = barewave::emu::host_copies_agree().unwrap();
    #[cfg(target_arch = "x86_64")]
    assert!(compared > 5000 || !std::is_x86_feature_detected!("avx2"), "{compared}");
    #[cfg(not(target_arch = "x86_64"))]
    assert_eq!(compared, 0);
}
