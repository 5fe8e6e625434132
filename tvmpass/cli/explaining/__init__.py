"""Turn a report (JSON) into words, a comparison, or a page; needs no TVM."""
