"""File formats. Each format has a module or a package that writes its files and reads them on a rank."""
