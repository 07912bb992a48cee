// Where liblockstep_capture.so is: LOCKSTEP_LIB_DIR, else the build folder of this source tree.
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const LIBRARY: &str = "liblockstep_capture.so";

fn main() {
    println!("cargo:rerun-if-env-changed=LOCKSTEP_LIB_DIR");
    let folder = env::var("LOCKSTEP_LIB_DIR").map(PathBuf::from).unwrap_or_else(|_| {
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../build/lib")
    });
    // A path to the library reaches this crate's own examples alone, not the programs that use the crate. `cargo run` and
    // `cargo test` of those look in folders that a build script names, if they are its own.
    let own = PathBuf::from(env::var("OUT_DIR").unwrap());
    let _ = fs::remove_file(own.join(LIBRARY));
    symlink(folder.join(LIBRARY), own.join(LIBRARY)).expect("a link in OUT_DIR");
    println!("cargo:rustc-link-search=native={}", own.display());
    println!("cargo:rustc-link-lib=dylib=lockstep_capture");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
}
