//! The headers, compiled by every dialect of C and C++ that the compiler has.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use tempfile::TempDir;

/// Uses what depends on the dialect: masks of 64 bits, the empty agent, names of older editions, functions.
const PROGRAM: &str = r#"
#include <dat/udat.h>
#include <dat/dat_registry.h>

static DAT_RETURN used(DAT_IA_HANDLE ia)
{
    DAT_OS_WAIT_PROXY_AGENT agent = DAT_OS_WAIT_PROXY_AGENT_NULL;
    DAT_PROVIDER_INFO info;
    DAT_PROVIDER_INFO *list[1];
    DAT_COUNT count = 0;
    DAT_IA_ATTR attributes;
    DAT_EP_ATTR wanted;
    DAT_CNO_HANDLE cno;
    DAT_EVD_HANDLE async = DAT_EVD_ASYNC_EXISTS;
    DAT_CONTEXT context;
    const char *major;
    const char *minor;
    list[0] = &info;
    context.as_index = 1;
    attributes.max_rdma_read_per_ep = 1;
    wanted.max_mtu_size = attributes.max_mtu_size = 1;
    if (dat_ia_open("none", 1, &async, &ia) == DAT_SUCCESS || async == DAT_EVD_OUT_OF_SCOPE)
        return dat_strerror(DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA), &major, &minor);
    if (dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &async))
        return dat_pz_free(ia);
    if (DAT_IS_WARNING(dat_registry_list_providers(1, &count, list)) || wanted.max_message_size == DAT_TIMEOUT_INFINITE)
        return dat_set_consumer_context(ia, context);
    if (dat_ia_query(ia, &async, DAT_IA_FIELD_ALL | DAT_IA_FIELD_IA_VENDOR_ATTR, &attributes, DAT_PROVIDER_FIELD_NONE, NULL))
        return dat_registry_remove_provider((DAT_PROVIDER *)ia, &info);
    return dat_cno_create(ia, agent, &cno);
}

int main(void)
{
    return used(DAT_HANDLE_NULL) == DAT_SUCCESS;
}
"#;

fn compiles(compiler: &str, dialect: &str, source: &Path) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let compiled = Command::new(compiler)
        .arg(format!("-std={dialect}"))
        .args(["-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
        .arg("-I")
        .args([&include, source])
        .output()
        .expect("a compiler");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        compiled.status.success(),
        "{compiler} -std={dialect}: {said}"
    );
}

#[test]
fn every_dialect_takes_the_headers() {
    let folder = TempDir::new().expect("a folder");
    let c = folder.path().join("program.c");
    let cpp = folder.path().join("program.cc");
    fs::write(&c, PROGRAM).expect("the source");
    fs::write(&cpp, PROGRAM).expect("the source");
    for dialect in ["c89", "gnu89", "c99", "c11", "c17", "c2x"] {
        compiles("cc", dialect, &c);
    }
    for dialect in ["c++98", "c++11", "c++14", "c++17", "c++20", "gnu++20"] {
        compiles("c++", dialect, &cpp);
    }
}

/// Whichever of them comes first.
#[test]
fn every_header_stands_alone() {
    let folder = TempDir::new().expect("a folder");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/dat");
    let mut count = 0;
    for header in fs::read_dir(headers).expect("the headers") {
        let name = header.expect("a header").file_name();
        let name = name.to_str().expect("a name");
        let source = folder.path().join("alone.c");
        let text = format!("#include <dat/{name}>\nint main(void) {{ return 0; }}\n");
        fs::write(&source, text).expect("the source");
        compiles("cc", "c89", &source);
        count += 1;
    }
    assert_eq!(count, 6);
}
