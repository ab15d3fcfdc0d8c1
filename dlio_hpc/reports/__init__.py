"""Reports: results of jobs, studies and logs as documents, HTML pages, pictures and exports."""
