// Where the capture library is: LOCKSTEP_LIB_DIR, else beside this crate (in the build folder of a source tree, or in the
// prefix it was installed to), else where pkg-config knows it.
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

const LIBRARY: &str = if cfg!(target_os = "macos") { "liblockstep_capture.dylib" } else { "liblockstep_capture.so" };

fn main() {
    println!("cargo:rerun-if-env-changed=LOCKSTEP_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let folder = library_folder();
    // A path to the library reaches this crate's own examples alone, not the programs that use the crate. `cargo run` and
    // `cargo test` of those look in folders that a build script names, if they are its own.
    let own = PathBuf::from(env::var("OUT_DIR").unwrap());
    let _ = fs::remove_file(own.join(LIBRARY));
    symlink(folder.join(LIBRARY), own.join(LIBRARY)).expect("a link in OUT_DIR");
    println!("cargo:rustc-link-search=native={}", own.display());
    println!("cargo:rustc-link-lib=dylib=lockstep_capture");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
}

fn library_folder() -> PathBuf {
    if let Ok(told) = env::var("LOCKSTEP_LIB_DIR") {
        return PathBuf::from(told);
    }
    let crate_folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap());
    for beside in ["../../build/lib", "../../../lib"] {
        if crate_folder.join(beside).join(LIBRARY).exists() {
            return crate_folder.join(beside);
        }
    }
    match Command::new("pkg-config").args(["--variable=libdir", "lockstep"]).output() {
        Ok(answer) if answer.status.success() => {
            PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim().to_string())
        }
        _ => panic!("[lockstep] {LIBRARY} was not found; try LOCKSTEP_LIB_DIR=FOLDER, or PKG_CONFIG_PATH=PREFIX/lib/pkgconfig"),
    }
}
