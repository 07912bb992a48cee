// Where liblockstep_capture.so is: LOCKSTEP_LIB_DIR, else the build folder of this source tree.
use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-env-changed=LOCKSTEP_LIB_DIR");
    let folder = env::var("LOCKSTEP_LIB_DIR").map(PathBuf::from).unwrap_or_else(|_| {
        PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../build/lib")
    });
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=dylib=lockstep_capture");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
}
