//! What stands in for `aya_ebpf::macros`: one attribute, `#[map]`.

use proc_macro::{TokenStream, TokenTree};

/// A map knows its own name, by which [the machine] finds where it lies; and the whole crate may list it.
///
/// `static NAME: Kind<…> = …;` becomes `pub(crate) static NAME: Kind<…> = Kind::<…>::named(…, "NAME");`.
///
/// [the machine]: https://docs.rs/aya-ebpf/latest/aya_ebpf/macros/attr.map.html
#[proc_macro_attribute]
pub fn map(_: TokenStream, item: TokenStream) -> TokenStream {
    rewritten(item).unwrap_or_else(|| {
        let error = r##"compile_error!("#[map] is for `static NAME: TYPE = VALUE;`");"##;
        error.parse().unwrap_or_default()
    })
}

fn rewritten(item: TokenStream) -> Option<TokenStream> {
    let is_static =
        |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident.to_string() == "static");
    let is = |token: &TokenTree, sign| matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign);
    let mut rest = item.into_iter().skip_while(|token| !is_static(token)).skip(1);
    let name = rest.next()?;
    let mut rest = rest.skip_while(|token| is(token, ':'));
    let kind: TokenStream = rest.by_ref().take_while(|token| !is(token, '=')).collect();
    let value: TokenStream = rest.take_while(|token| !is(token, ';')).collect();
    let text = format!(
        "pub(crate) static {name}: {kind} = {{ const UNNAMED: {kind} = {value}; UNNAMED.named(\"{name}\") }};"
    );
    text.parse().ok()
}
