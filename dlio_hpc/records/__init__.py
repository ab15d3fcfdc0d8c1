"""Records of jobs and studies, read from a directory or an archive, and the outcomes that follow from them."""
